package api

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"github.com/gin-gonic/gin"
	"go.yaml.in/yaml/v3"
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
	var root yaml.Node
	if err := yaml.Unmarshal(openapiYAML, &root); err != nil {
		return docs{}, fmt.Errorf("openapi.yaml: %w", err)
	}
	document, err := appendJSON(nil, &root)
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

// appendJSON appends a node of YAML as JSON, and unlike a decoder keeps the order in which things were written.
func appendJSON(b []byte, n *yaml.Node) ([]byte, error) {
	var err error
	switch n.Kind {
	case yaml.DocumentNode:
		return appendJSON(b, n.Content[0])
	case yaml.MappingNode, yaml.SequenceNode:
		open, end := byte('{'), byte('}')
		if n.Kind == yaml.SequenceNode {
			open, end = '[', ']'
		}
		b = append(b, open)
		for i, child := range n.Content {
			switch {
			case i == 0:
			case n.Kind == yaml.MappingNode && i%2 == 1: // keys and values alternate
				b = append(b, ':')
			default:
				b = append(b, ',')
			}
			if b, err = appendJSON(b, child); err != nil {
				return nil, err
			}
		}
		return append(b, end), nil
	default:
		var v any
		if err := n.Decode(&v); err != nil {
			return nil, err
		}
		value, err := json.Marshal(v)
		return append(b, value...), err
	}
}

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
