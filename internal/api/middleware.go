package api

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"
)

const (
	headerAPIKey    = "X-API-Key"
	headerRequestID = "X-Request-Id"

	// maxBody is far above any real request, which has a kilobyte, and bounds what one request costs.
	maxBody = 1 << 20
	// maxRequestIDLength bounds what a caller may put into our log.
	maxRequestIDLength = 128
)

// Keys of the log.
const (
	logRequestID       = "request_id"
	logClientRequestID = "client_request_id"
	logTraceID         = "trace_id"
	logMethod          = "method"
	logRoute           = "route"
	logSandboxID       = "sandbox_id"
	logKeyName         = "key_name"
	logStatus          = "status"
	logDuration        = "duration"
	logError           = "error"
	logPanic           = "panic"
	logStack           = "stack"
	logAddr            = "addr"
)

// identify gives every request an id of its own. The caller's X-Request-Id is echoed in its place and goes into the log,
// but nothing is decided by it: callers repeat themselves.
func identify(c *gin.Context) {
	id := uuid.NewString()
	c.Set(logRequestID, id)
	if theirs := c.GetHeader(headerRequestID); saneRequestID(theirs) {
		c.Set(logClientRequestID, theirs)
		id = theirs
	}
	c.Header(headerRequestID, id)
	c.Next()
}

func saneRequestID(id string) bool {
	for _, b := range []byte(id) {
		if b < '!' || b > '~' {
			return false
		}
	}
	return 0 < len(id) && len(id) <= maxRequestIDLength
}

// requestID is unique to the request, whatever the caller sent.
func requestID(c *gin.Context) string { return c.GetString(logRequestID) }

// requestAttrs are the fields that tie a line of the log to the request.
func requestAttrs(c *gin.Context) []slog.Attr {
	attrs := []slog.Attr{slog.String(logRequestID, requestID(c))}
	if theirs := c.GetString(logClientRequestID); theirs != "" {
		attrs = append(attrs, slog.String(logClientRequestID, theirs))
	}
	if span := trace.SpanContextFromContext(c.Request.Context()); span.IsValid() {
		attrs = append(attrs, slog.String(logTraceID, span.TraceID().String()))
	}
	return attrs
}

// logAccess writes one line for each request, without anything that could be secret: no headers, no body, and the route in
// place of the path. Probes are at debug level.
func logAccess(log *slog.Logger) gin.HandlerFunc {
	return func(c *gin.Context) {
		start := time.Now()
		defer func() {
			level := slog.LevelInfo
			if !guarded(c) {
				level = slog.LevelDebug
			}
			attrs := append(requestAttrs(c),
				slog.String(logMethod, c.Request.Method),
				slog.String(logRoute, c.FullPath()),
				slog.Int(logStatus, c.Writer.Status()),
				slog.Duration(logDuration, time.Since(start)))
			if id := sandboxID(c); id != "" {
				attrs = append(attrs, slog.String(logSandboxID, id))
			}
			if name := keyName(c); name != "" {
				attrs = append(attrs, slog.String(logKeyName, name))
			}
			if err := c.Errors.Last(); err != nil {
				attrs = append(attrs, slog.String(logError, err.Error()))
			}
			log.LogAttrs(c.Request.Context(), level, "request", attrs...)
		}()
		c.Next()
	}
}

// recoverPanic answers a panic with 500. What it was stays in the log.
func recoverPanic(log *slog.Logger) gin.HandlerFunc {
	return func(c *gin.Context) {
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(v)
			}
			attrs := append(requestAttrs(c),
				slog.String(logPanic, fmt.Sprint(v)),
				slog.String(logStack, string(debug.Stack())))
			log.LogAttrs(c.Request.Context(), slog.LevelError, "handler panicked", attrs...)
			if c.Writer.Written() {
				panic(http.ErrAbortHandler) // half a body must not pass for a whole one
			}
			replyDetail(c, http.StatusInternalServerError, "Internal Server Error")
		}()
		c.Next()
	}
}

// authenticate lets nobody below /api/ without a key of the ring; nobody at all when that is empty.
func authenticate(ring keyring, hider *strings.Replacer) gin.HandlerFunc {
	return func(c *gin.Context) {
		if !guarded(c) {
			return
		}
		name := ring.find(c.GetHeader(headerAPIKey))
		if name == "" {
			replyUnauthorized(c)
			return
		}
		c.Set(logKeyName, name)
		c.Set(contextHider, hider)
	}
}

// keyName tells who has sent the request; empty when the key was none of ours, or none was needed.
func keyName(c *gin.Context) string { return c.GetString(logKeyName) }

// guarded tells whether the request needs the key. It looks at the path with all escapes undone, the way the most lenient of
// routers would read it, and, so that no form is missed, also at the route that was found.
func guarded(c *gin.Context) bool {
	p := strings.ToLower(c.Request.URL.Path)
	for _, form := range []string{p, path.Clean("/" + p), c.FullPath()} {
		if strings.HasPrefix(form, "/api/") {
			return true
		}
	}
	return false
}

// limitBody refuses a body that is announced as too large, and cuts off one that turns out to be.
func limitBody(c *gin.Context) {
	if c.Request.ContentLength > maxBody {
		replyError(c, &http.MaxBytesError{Limit: maxBody})
		return
	}
	c.Request.Body = http.MaxBytesReader(c.Writer, c.Request.Body, maxBody)
}

// readBody returns an error that is ready for replyError.
func readBody(c *gin.Context) ([]byte, error) {
	body, err := io.ReadAll(c.Request.Body)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, err
	case err != nil: // the connection ended or stalled before the body was complete
		return nil, &statusError{Status: http.StatusBadRequest, Detail: "There was an error parsing the body"}
	}
	return body, nil
}

// unescapeParams undoes the escapes in path parameters. gin would do it by the rules of queries and make "+" a space.
func unescapeParams(c *gin.Context) {
	for i, param := range c.Params {
		if value, err := url.PathUnescape(param.Value); err == nil {
			c.Params[i].Value = value
		}
	}
}
