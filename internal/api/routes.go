package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"sandbox-provisioner/internal/jobs"
	"sandbox-provisioner/internal/k8s"
	"sandbox-provisioner/internal/sandbox"
	"sandbox-provisioner/internal/telemetry"
)

// maxWait is the most that a create waits, whatever the client prefers: its own patience ends at 30 s.
const maxWait = 25 * time.Second

// A handler serves the routes of the contract.
type handler struct {
	provisioner *Provisioner
	cluster     Cluster
	settings    k8s.Settings
	cfg         Config
	checks      []telemetry.Check
}

// NewHandler returns the HTTP interface. tracing may be nil. The checks decide about /readyz.
func NewHandler(
	provisioner *Provisioner, cluster Cluster, settings k8s.Settings, cfg Config, metrics *Metrics,
	tracing trace.TracerProvider, log *slog.Logger, checks ...telemetry.Check,
) http.Handler {
	h := &handler{provisioner: provisioner, cluster: cluster, settings: settings, cfg: cfg, checks: checks}
	e := newEngine(cfg, metrics, tracing, log)
	registerDocs(e)
	e.GET("/readyz", h.ready)
	e.GET("/api/capabilities", h.capabilities)
	e.POST("/api/sandboxes", h.create)
	e.GET("/api/sandboxes", h.list)
	e.GET("/api/sandboxes/:id", h.get)
	e.DELETE("/api/sandboxes/:id", h.delete)
	// The empty id is as impossible as any other.
	e.GET("/api/sandboxes/", h.get)
	e.DELETE("/api/sandboxes/", h.delete)
	e.GET("/api/sandboxes/:id/presence", h.presence)
	e.GET("/api/sandboxes/:id/job", h.job)
	return e
}

func (h *handler) create(c *gin.Context) {
	body, err := readBody(c)
	if err != nil {
		replyError(c, err)
		return
	}
	req, invalid := decodeCreate(body)
	if invalid != nil {
		replyInvalid(c, invalid)
		return
	}
	c.Set(logSandboxID, req.ID)
	trace.SpanFromContext(c.Request.Context()).SetAttributes(attribute.String(logSandboxID, req.ID))
	if req.Spec, err = h.admit(req.Spec); err != nil {
		replyError(c, err)
		return
	}
	order := Order{ID: req.ID, Spec: req.Spec, Wait: h.cfg.CreateWait}
	prefer := parsePrefer(c.Request.Header).upTo(maxWait)
	order.Async, order.Wait = prefer.async(), prefer.wait(h.cfg.CreateWait)
	state, err := h.provisioner.Create(c.Request.Context(), order)
	switch {
	case err == nil:
		prefer.applied(c, http.StatusOK)
		reply(c, http.StatusOK, newSandboxReply(c, state))
	case errors.Is(err, errPending) && (order.Async || h.settings.ServiceType == k8s.ClusterIP):
		prefer.applied(c, http.StatusAccepted)
		c.Header("Location", "/api/sandboxes/"+req.ID)
		pending := sandbox.State{
			ID: req.ID, Status: sandbox.Pending, URL: h.settings.URL(req.ID, 0), Capacity: capacity(req.Spec),
		}
		if trouble := (*troubleError)(nil); errors.As(err, &trouble) {
			pending.Reason, pending.Message = string(trouble.reason), trouble.message
		}
		reply(c, http.StatusAccepted, newSandboxReply(c, pending))
	default:
		replyError(c, err)
	}
}

// admit applies the rules that depend on how this deployment is set up.
func (h *handler) admit(spec sandbox.Spec) (sandbox.Spec, error) {
	switch {
	case spec.LarkBroker && h.settings.LarkBrokerImage == "":
		return spec, &statusError{Status: http.StatusServiceUnavailable,
			Detail: "The Lark broker was requested, but LARK_CLI_BROKER_IMAGE is not configured"}
	case h.settings.LarkBrokerImage != "" && spec.LarkRuntime && !spec.LarkBroker:
		return spec, &statusError{Status: http.StatusConflict,
			Detail: "The Lark broker is configured: request it with provision_lark_cli_broker"}
	}
	mounts, err := h.settings.MountRules().Check(spec)
	spec.ExtraMounts = mounts
	return spec, err
}

// capacity is what a Pod of spec will have.
func capacity(spec sandbox.Spec) int {
	if spec.MaxShellSessions == 0 {
		return sandbox.DefaultCapacity
	}
	return spec.MaxShellSessions
}

func (h *handler) get(c *gin.Context) {
	id := c.Param("id")
	if !sandbox.ValidID(id) {
		replyMissing(c, id, nil)
		return
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), h.cfg.ReadWait)
	defer cancel()
	found, err := h.provisioner.Get(ctx, id)
	switch {
	case err != nil:
		replyError(c, unreadable(err))
	case !found.Exists:
		replyMissing(c, id, found.Job)
	default:
		r := newSandboxReply(c, found.Sandbox)
		if found.Job != nil && found.Sandbox.Status == sandbox.Pending && r.MaxShellSessions == 0 {
			r.MaxShellSessions = capacity(*found.Job.Intent.Spec)
		}
		reply(c, http.StatusOK, r)
	}
}

func replyMissing(c *gin.Context, id string, job *jobs.View) {
	body := missingReply{Detail: "Sandbox '" + id + "' not found"}
	if job != nil {
		r := newJobReply(c, *job)
		body.Job = &r
	}
	reply(c, http.StatusNotFound, body)
}

// list pages over the ids in their order, so that a page is right whatever was made or deleted since the one before.
func (h *handler) list(c *gin.Context) {
	limit, err := strconv.Atoi(c.DefaultQuery("limit", "0"))
	if err != nil || limit < 0 {
		replyError(c, &statusError{Status: http.StatusBadRequest, Detail: "limit must be a whole number, 0 or more"})
		return
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), h.cfg.ReadWait)
	defer cancel()
	all, err := h.provisioner.List(ctx)
	if err != nil {
		replyError(c, unreadable(err))
		return
	}
	page := listReply{Sandboxes: make([]sandboxReply, 0, len(all))}
	after := c.Query("continue")
	for _, state := range all {
		if state.ID <= after {
			continue
		}
		if limit > 0 && len(page.Sandboxes) == limit {
			page.Continue = page.Sandboxes[limit-1].ID
			break
		}
		page.Sandboxes = append(page.Sandboxes, newSandboxReply(c, state))
	}
	page.Count = len(page.Sandboxes)
	reply(c, http.StatusOK, page)
}

func (h *handler) delete(c *gin.Context) {
	id := c.Param("id")
	if !sandbox.ValidID(id) {
		reply(c, http.StatusOK, deleteReply{OK: true, ID: id})
		return
	}
	prefer := parsePrefer(c.Request.Header).upTo(h.cfg.DeleteWait)
	err := h.provisioner.Delete(c.Request.Context(), id, prefer.wait(h.cfg.DeleteWait))
	var partial *partialError
	switch {
	case err == nil:
		prefer.applied(c, http.StatusOK)
		reply(c, http.StatusOK, deleteReply{OK: true, ID: id})
	case prefer.async() && (errors.Is(err, errPending) || errors.As(err, &partial)):
		prefer.applied(c, http.StatusAccepted)
		reply(c, http.StatusAccepted, deleteReply{OK: true, ID: id})
	case errors.Is(err, errPending):
		replyError(c, &partialError{"service: not confirmed in time, pod: not confirmed in time; the job goes on"})
	default:
		replyError(c, err)
	}
}

func (h *handler) presence(c *gin.Context) {
	r := presenceReply{ID: c.Param("id")}
	if sandbox.ValidID(r.ID) {
		ctx, cancel := context.WithTimeout(c.Request.Context(), h.cfg.ReadWait)
		defer cancel()
		uid, err := h.cluster.PodUID(ctx, r.ID)
		if err != nil {
			replyError(c, &statusError{Status: http.StatusInternalServerError, Detail: unreadable(err).Error()})
			return
		}
		if uid != "" {
			r.Exists, r.PodUID = true, &uid
		}
	}
	reply(c, http.StatusOK, r)
}

func (h *handler) job(c *gin.Context) {
	id := c.Param("id")
	if !sandbox.ValidID(id) {
		replyMissing(c, id, nil)
		return
	}
	v, err := h.provisioner.Job(c.Request.Context(), id)
	switch {
	case err != nil:
		replyError(c, err)
	case v.Seq == 0:
		replyDetail(c, http.StatusNotFound, "No job of sandbox '"+id+"' is known")
	default:
		reply(c, http.StatusOK, newJobReply(c, v))
	}
}

// capabilities must answer at once, whatever else is down.
func (h *handler) capabilities(c *gin.Context) {
	reply(c, http.StatusOK, capabilitiesReply{
		LarkInitImage: h.settings.LarkInitImage != "", LarkBrokerImage: h.settings.LarkBrokerImage != "",
	})
}

func (h *handler) ready(c *gin.Context) {
	if down := telemetry.Down(c.Request.Context(), h.checks); len(down) > 0 {
		replyError(c, &statusError{http.StatusServiceUnavailable, strings.Join(down, "; "), minRetryAfter})
		return
	}
	reply(c, http.StatusOK, map[string]string{"status": "ok"})
}
