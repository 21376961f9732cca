package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/gin-gonic/gin"

	"sandbox-provisioner/internal/sandbox"
)

// Keys of the audit, beside those of every request. They stay as they are: somebody evaluates them.
const (
	auditMessage = "audit"

	auditWho    = "who"    // name of the key; empty when it was none of ours
	auditAction = "action" // create or delete
	auditFrom   = "from"   // address of the client
	auditResult = "result"
)

// What became of a request that is audited.
const (
	auditDone     = "done"
	auditAccepted = "accepted" // 202
	auditPending  = "pending"  // not done in time, and going on
	auditRefused  = "refused"  // by us or by Kubernetes, because of what was asked or of who asked
	auditFailed   = "failed"
)

// audit writes one line for each request to create or delete a sandbox, whoever asked and whatever became of it. LOG_LEVEL does
// not suppress it.
func audit(log *slog.Logger) gin.HandlerFunc {
	log = slog.New(always{log.Handler()})
	return func(c *gin.Context) {
		action := auditedAction(c)
		if action == "" {
			return
		}
		defer func() {
			attrs := append(requestAttrs(c),
				slog.String(auditWho, keyName(c)),
				slog.String(auditAction, action),
				slog.String(logSandboxID, sandboxID(c)),
				slog.String(auditFrom, c.ClientIP()),
				slog.Int(logStatus, c.Writer.Status()),
				slog.String(auditResult, auditedResult(c)))
			log.LogAttrs(c.Request.Context(), slog.LevelInfo, auditMessage, attrs...)
		}()
		c.Next()
	}
}

func auditedAction(c *gin.Context) string {
	switch c.Request.Method + " " + c.FullPath() {
	case "POST /api/sandboxes":
		return "create"
	case "DELETE /api/sandboxes/:id", "DELETE /api/sandboxes/":
		return "delete"
	}
	return ""
}

func auditedResult(c *gin.Context) string {
	var err error
	if last := c.Errors.Last(); last != nil {
		err = last.Err
	}
	status, partial := c.Writer.Status(), (*partialError)(nil)
	switch {
	case status == http.StatusAccepted:
		return auditAccepted
	case errors.Is(err, errPending), errors.As(err, &partial):
		return auditPending
	case status < http.StatusBadRequest:
		return auditDone
	case status < http.StatusInternalServerError:
		return auditRefused
	}
	return auditFailed
}

// sandboxID is the id that the request is about; empty when that cannot be one.
func sandboxID(c *gin.Context) string {
	if id := c.GetString(logSandboxID); id != "" {
		return id
	}
	if id := c.Param("id"); sandbox.ValidID(id) {
		return id
	}
	return ""
}

// always lets every line pass, whatever its level.
type always struct{ slog.Handler }

func (always) Enabled(context.Context, slog.Level) bool { return true }
