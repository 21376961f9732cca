package k8s

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"sandbox-provisioner/internal/sandbox"
)

// claimRoot is the directory of DeerFlow's state inside the user data claim.
const claimRoot = "deer-flow"

// storage is what a Pod mounts: its volumes, and which container sees them where.
type storage struct {
	volumes []corev1.Volume
	sandbox []corev1.VolumeMount
	broker  []corev1.VolumeMount
}

// An extra is a mount that the request asked for.
type extra struct {
	host     string
	below    string // host relative to the state directory, separated by slashes
	at       string
	readOnly bool
}

// MountRules are the rules for the extra mounts that these settings allow.
func (s Settings) MountRules() sandbox.MountRules {
	return sandbox.MountRules{
		Base:       s.stateDir(),
		Claim:      s.UserDataPVC != "",
		LarkInit:   s.LarkInitImage != "",
		LarkBroker: s.LarkBrokerImage != "",
	}
}

func (s Settings) stateDir() sandbox.HostPath { return sandbox.StateDir(s.BaseDir, s.ThreadsPath) }

// storage lays out the volumes of a sandbox. Kubernetes wants every mount path once, so an extra mount replaces what would
// otherwise be at its path.
func (s Settings) storage(spec sandbox.Spec) storage {
	extras, credentials := s.extras(spec)
	var st storage
	s.addSkills(&st, spec, extras)
	s.addUserData(&st, spec)
	for i, e := range extras {
		name := "extra-" + strconv.Itoa(i)
		st.volumes = append(st.volumes, s.extraVolume(name, e))
		st.sandbox = append(st.sandbox, s.extraMount(name, e.at, e))
	}
	s.addLark(&st, spec, credentials)
	return st
}

// extras sorts the mounts of the request into those of the sandbox and, with pattern B, those of the broker. The ones that
// are in neither are provided by other means, or would be impossible to mount.
func (s Settings) extras(spec sandbox.Spec) (extras, credentials []extra) {
	base := s.stateDir()
	for _, m := range spec.ExtraMounts {
		host := sandbox.ParseHostPath(m.HostPath)
		below, inside := host.Within(base)
		if !inside || below == "" && s.UserDataPVC != "" {
			continue // MountRules refuse these; an intent from elsewhere does not get them either
		}
		e := extra{host.String(), below, m.ContainerPath, m.ReadOnly}
		switch {
		case e.at == sandbox.LarkRuntimePath && s.pattern(spec) != larkNone:
		case isCredential(e.at) && spec.LarkBroker:
			// Also when there is no image for the broker: the request meant to keep them out of the sandbox.
			credentials = append(credentials, e)
		default:
			extras = append(extras, e)
		}
	}
	if s.SkillsPVC != "" && !isThreadSkills(extras, spec.SkillsPath) {
		// They lie inside the claim's own mount, which is read-only: their mount points cannot be made there.
		extras = slices.DeleteFunc(extras, func(e extra) bool {
			_, ok := sandbox.SkillCategory(e.at, spec.SkillsPath)
			return ok
		})
	}
	return extras, credentials
}

// isThreadSkills tells whether extras bring all categories of skills from the view of one thread, and so replace the
// skills claim. Whose thread it is does not matter: a gateway that sends no thread id sends the paths all the same.
func isThreadSkills(extras []extra, skillsPath string) bool {
	view, found := "", 0
	for _, e := range extras {
		category, ok := sandbox.SkillCategory(e.at, skillsPath)
		if !ok {
			continue
		}
		dir, ok := strings.CutSuffix(e.below, "/"+category)
		if !ok || found > 0 && dir != view {
			return false
		}
		view = dir
		found++
	}
	p := strings.Split(view, "/")
	return found == 4 && len(p) == 5 && p[0] == "users" && p[2] == "threads" && p[4] == "skills_view"
}

// addSkills adds the skills, less what an extra mount replaces.
func (s Settings) addSkills(st *storage, spec sandbox.Spec, extras []extra) {
	if s.SkillsPVC != "" {
		if !isThreadSkills(extras, spec.SkillsPath) {
			st.volumes = append(st.volumes, claimVolume("skills", s.SkillsPVC, true))
			st.sandbox = append(st.sandbox, corev1.VolumeMount{
				Name: "skills", MountPath: spec.SkillsPath, SubPath: s.skillsSubPath(spec), ReadOnly: true,
			})
		}
		return
	}
	base := s.stateDir()
	user := base.Join("users", spec.UserID)
	for _, skills := range [...]struct {
		category string
		from     sandbox.HostPath
	}{{"public", base}, {"custom", user}, {"legacy", user}} {
		name, at := "skills-"+skills.category, spec.SkillsPath+"/"+skills.category
		if slices.ContainsFunc(extras, func(e extra) bool { return e.at == at }) {
			continue
		}
		host := skills.from.Join("skills_view", skills.category)
		st.volumes = append(st.volumes, hostVolume(name, host.String(), true))
		st.sandbox = append(st.sandbox, corev1.VolumeMount{Name: name, MountPath: at, ReadOnly: true})
	}
}

func (s Settings) skillsSubPath(spec sandbox.Spec) string {
	t, err := ParseSubPathTemplate(s.SkillsSubPathTemplate)
	if err != nil {
		// Validate refuses such a template. An empty subPath would show everybody's skills; this one shows nobody's.
		return s.SkillsSubPathTemplate
	}
	return t.Render(spec.UserID, spec.ThreadID)
}

func (s Settings) addUserData(st *storage, spec sandbox.Spec) {
	const name = "user-data"
	mount := corev1.VolumeMount{Name: name, MountPath: sandbox.UserDataPath}
	if s.UserDataPVC != "" {
		mount.SubPath = claimRoot + "/users/" + spec.UserID + "/threads/" + spec.ThreadID + "/user-data"
		st.volumes = append(st.volumes, claimVolume(name, s.UserDataPVC, false))
	} else {
		host := sandbox.ParseHostPath(s.ThreadsPath).Join(spec.ThreadID, "user-data")
		st.volumes = append(st.volumes, hostVolume(name, host.String(), false))
	}
	st.sandbox = append(st.sandbox, mount)
}

func (s Settings) extraVolume(name string, e extra) corev1.Volume {
	if s.UserDataPVC != "" {
		return claimVolume(name, s.UserDataPVC, false)
	}
	return hostVolume(name, e.host, e.readOnly)
}

func (s Settings) extraMount(name, at string, e extra) corev1.VolumeMount {
	mount := corev1.VolumeMount{Name: name, MountPath: at, ReadOnly: e.readOnly}
	if s.UserDataPVC != "" {
		mount.SubPath = claimRoot + "/" + e.below
	}
	return mount
}

func claimVolume(name, claim string, readOnly bool) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim, ReadOnly: readOnly},
	}}
}

// hostVolume is a directory of the node. One that the sandbox may only read has to be there; making an empty one would
// hide the mistake.
func hostVolume(name, host string, readOnly bool) corev1.Volume {
	kind := corev1.HostPathDirectoryOrCreate
	if readOnly {
		kind = corev1.HostPathDirectory
	}
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: host, Type: &kind},
	}}
}
