package api

import (
	"math"
	"regexp"

	"sandbox-provisioner/internal/sandbox"
)

const (
	defaultUser = "default"

	// maxUserLength is that of a file name: the user id becomes a directory.
	maxUserLength = 255
	// maxPathLength is Linux' PATH_MAX. A Pod with a longer path would be accepted and never start.
	maxPathLength = 4096
)

var (
	idPattern     = regexp.MustCompile(sandbox.IDPattern)
	threadPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	userPattern   = regexp.MustCompile(`^[A-Za-z0-9_\-]+$`)
)

// A createRequest is the body of POST /api/sandboxes. The mounts of its Spec are as they were sent: whether they are allowed
// depends on the deployment, not on the form of the request.
type createRequest struct {
	ID   string
	Spec sandbox.Spec
}

// decodeCreate returns either a request whose fields are valid and defaulted, or what is wrong with body, in the order of
// the fields. Unknown fields are ignored.
func decodeCreate(body []byte) (createRequest, []fieldError) {
	raw, err := parseBody(body)
	if err != nil {
		return createRequest{}, []fieldError{*err}
	}
	var errs []fieldError
	o, ok := newObject(raw, &errs, "body")
	if !ok {
		return createRequest{}, errs
	}

	o.allowNull("thread_id", "max_shell_sessions")
	req := createRequest{ID: o.text("sandbox_id", maxLength(sandbox.MaxIDLength), matching(idPattern))}
	req.Spec.ThreadID = o.textOr("thread_id", req.ID, matching(threadPattern))
	req.Spec.UserID = o.textOr("user_id", defaultUser, maxLength(maxUserLength), matching(userPattern))
	req.Spec.ExtraMounts = decodeMounts(o, "extra_mounts")
	o.boolean("include_legacy_skills") // checked, as it always was, and without effect
	req.Spec.SkillsPath = o.textOr("skills_container_path", sandbox.DefaultSkillsPath,
		maxLength(maxPathLength), checked(sandbox.CheckSkillsPath))
	req.Spec.MaxShellSessions = o.integer("max_shell_sessions", 1, math.MaxInt32)
	req.Spec.LarkRuntime = o.boolean("provision_lark_cli_runtime")
	req.Spec.LarkBroker = o.boolean("provision_lark_cli_broker")

	if len(errs) > 0 {
		return createRequest{}, errs
	}
	return req, nil
}

func decodeMounts(o object, name string) []sandbox.Mount {
	var mounts []sandbox.Mount
	for i, raw := range o.list(name) {
		if len(*o.errs) >= maxFieldErrors {
			return nil
		}
		item, ok := newObject(raw, o.errs, append(o.loc[:len(o.loc):len(o.loc)], name, i)...)
		if !ok {
			continue
		}
		mounts = append(mounts, sandbox.Mount{
			HostPath:      item.text("host_path", maxLength(maxPathLength)),
			ContainerPath: item.text("container_path", maxLength(maxPathLength)),
			ReadOnly:      item.boolean("read_only"),
		})
	}
	return mounts
}
