package api

import (
	"net/http"

	"github.com/gin-gonic/gin"
)

// registerHealth adds the probes that say no more than that the process serves. They touch neither Kubernetes nor NATS, whose
// troubles a restart of this process would not cure.
func registerHealth(e *gin.Engine) {
	e.GET("/health", health)
	e.GET("/livez", health)
}

func health(c *gin.Context) { reply(c, http.StatusOK, map[string]string{"status": "ok"}) }
