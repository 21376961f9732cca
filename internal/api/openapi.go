package api

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"net/http"
	"sync"

	"github.com/gin-gonic/gin"
	"sigs.k8s.io/yaml"
)

var (
	//go:embed openapi.yaml
	openapiYAML []byte
	//go:embed docs.html
	docsHTML []byte
)

// documentMark is where the page takes up the document.
const documentMark = "{/* document */}"

// A docs is what registerDocs serves.
type docs struct {
	// document is the interface in OpenAPI 3.1, as JSON.
	document []byte
	// page renders the document without asking anybody for anything.
	page []byte
	// policy is the Content-Security-Policy of the page.
	policy string
}

// loadDocs works once: the files are part of the program.
var loadDocs = sync.OnceValues(func() (docs, error) {
	// The JSON has no "<" that is not escaped, so that it can stand in a script element.
	document, err := yaml.YAMLToJSON(openapiYAML)
	if err != nil {
		return docs{}, fmt.Errorf("openapi.yaml: %w", err)
	}
	return docs{
		document: document,
		page:     bytes.Replace(docsHTML, []byte(documentMark), document, 1),
		policy: "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
			"style-src " + hashOf("style") + "; script-src " + hashOf("script"),
	}, nil
})

// hashOf is the name under which a Content-Security-Policy allows an element of the page.
func hashOf(element string) string {
	_, rest, _ := bytes.Cut(docsHTML, []byte("<"+element+">"))
	content, _, _ := bytes.Cut(rest, []byte("</"+element+">"))
	sum := sha256.Sum256(content)
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// registerDocs adds the description of this interface, for programs and for people. It is open, as it tells no more than the
// source does.
func registerDocs(e *gin.Engine) {
	e.GET("/openapi.json", func(c *gin.Context) {
		d, err := loadDocs()
		if err != nil {
			replyError(c, err)
			return
		}
		c.Data(http.StatusOK, "application/json", d.document)
	})
	e.GET("/docs", func(c *gin.Context) {
		d, err := loadDocs()
		if err != nil {
			replyError(c, err)
			return
		}
		c.Header("Content-Security-Policy", d.policy)
		c.Header("X-Content-Type-Options", "nosniff")
		c.Header("Referrer-Policy", "no-referrer")
		c.Data(http.StatusOK, "text/html; charset=utf-8", d.page)
	})
}
