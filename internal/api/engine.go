package api

import (
	"log/slog"

	"github.com/gin-gonic/gin"
)

// newEngine returns a router with everything that holds for all requests, and the probes that need nothing else. Routes
// that are registered on it below /api/ are authenticated.
func newEngine(cfg Config, metrics *Metrics, log *slog.Logger) *gin.Engine {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	// No redirects: a client that follows one drops the body or the key.
	e.RedirectTrailingSlash = false
	e.RedirectFixedPath = false
	e.HandleMethodNotAllowed = true
	// Route on the path as it was sent: "..%2fx" is one id, though an impossible one. unescapeParams does the rest.
	e.UseEscapedPath = true
	e.UnescapePathValues = false
	// Nothing depends on the caller's address, so that no proxy needs to be believed.
	e.ForwardedByClientIP = false
	_ = e.SetTrustedProxies(nil) // parses nothing, so that nothing can fail

	e.Use(metrics.observe(cfg.Key != ""))
	e.Use(identify, logAccess(log), recoverPanic(log), authenticate(cfg.Key), limitBody, unescapeParams)
	e.NoRoute(replyNotFound)
	e.NoMethod(replyMethodNotAllowed)
	registerHealth(e)

	if cfg.Key == "" {
		log.Warn("no API key is set: every request below /api/ is refused")
	}
	return e
}
