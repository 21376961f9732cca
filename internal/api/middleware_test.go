package api

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

const testKey = "test-secret"

// A testServer serves newEngine with the routes of the contract, behind which handlers tell what they were called with.
type testServer struct {
	*httptest.Server
	log *syncBuffer
}

func newTestServer(t *testing.T, key string) testServer {
	t.Helper()
	log := &syncBuffer{}
	e := newEngine(Config{Key: key}, NewMetrics(nil), nil, slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	echo := func(c *gin.Context) { reply(c, http.StatusOK, map[string]string{"id": c.Param("id")}) }
	e.GET("/api/capabilities", echo)
	e.POST("/api/sandboxes", func(c *gin.Context) {
		body, err := readBody(c)
		if err != nil {
			replyError(c, err)
			return
		}
		reply(c, http.StatusOK, map[string]int{"length": len(body)})
	})
	e.GET("/api/sandboxes", echo)
	e.GET("/api/sandboxes/:id", echo)
	e.DELETE("/api/sandboxes/:id", echo)
	e.GET("/api/sandboxes/:id/presence", echo)
	e.GET("/api/sandboxes/:id/job", echo)
	e.GET("/api/panic", func(*gin.Context) { panic("secret of the panic") })
	e.GET("/api/panic/late", func(c *gin.Context) {
		_, _ = c.Writer.WriteString("half a bo")
		c.Writer.Flush()
		panic("too late")
	})
	e.GET("/api/panic/abort", func(*gin.Context) { panic(http.ErrAbortHandler) })
	e.GET("/api/fault", func(c *gin.Context) { replyError(c, errors.New("secret of the fault")) })
	s := httptest.NewUnstartedServer(e)
	s.Config.ErrorLog = slog.NewLogLogger(slog.NewJSONHandler(log, nil), slog.LevelError)
	s.Start()
	t.Cleanup(s.Close)
	return testServer{s, log}
}

// A syncBuffer is written by the server while the test reads.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

type testResponse struct {
	*http.Response
	body string
}

// raw sends bytes that no well-behaved client would, and reads one response.
func (s testServer) raw(t *testing.T, request string) testResponse {
	t.Helper()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, request) // a server that has seen enough may close before the end
	if half, ok := conn.(*net.TCPConn); ok && strings.Contains(request, "\r\nX-Half-Close: 1\r\n") {
		require.NoError(t, half.CloseWrite())
	}
	method, _, _ := strings.Cut(request, " ")
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return testResponse{resp, string(body)}
}

// ask sends a request without a body; the path goes out as it is.
func (s testServer) ask(t *testing.T, method, path string, headers ...string) testResponse {
	t.Helper()
	lines := append([]string{method + " " + path + " HTTP/1.1", "Host: x", "Connection: close"}, headers...)
	return s.raw(t, strings.Join(lines, "\r\n")+"\r\n\r\n")
}

// post sends a body to POST /api/sandboxes with the key and headers that say what they want of it.
func (s testServer) post(t *testing.T, body string, headers ...string) testResponse {
	t.Helper()
	lines := append([]string{"POST /api/sandboxes HTTP/1.1", "Host: x", withKey}, headers...)
	return s.raw(t, strings.Join(lines, "\r\n")+"\r\n\r\n"+body)
}

const withKey = "X-API-Key: " + testKey

func TestTheKeyIsRequired(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		serverKey string
		headers   []string
		want      int
	}{
		"no key is refused":                            {testKey, nil, 401},
		"the key is accepted":                          {testKey, []string{withKey}, 200},
		"the header's name is not case-sensitive":      {testKey, []string{"x-api-key: " + testKey}, 200},
		"another key is refused":                       {testKey, []string{"X-API-Key: test-secreT"}, 401},
		"the beginning of the key is refused":          {testKey, []string{"X-API-Key: test-"}, 401},
		"more than the key is refused":                 {testKey, []string{withKey + "x"}, 401},
		"an empty key is refused":                      {testKey, []string{"X-API-Key:"}, 401},
		"Latin-1 is refused":                           {testKey, []string{"X-API-Key: test-secr\xe9t"}, 401},
		"UTF-8 is refused":                             {testKey, []string{"X-API-Key: test-secrét"}, 401},
		"a key beyond ASCII is compared as bytes":      {"clé", []string{"X-API-Key: clé"}, 200},
		"its Latin-1 form is another key":              {"clé", []string{"X-API-Key: cl\xe9"}, 401},
		"without a key on the server, none fits":       {"", []string{withKey}, 401},
		"without a key on the server, absent is wrong": {"", nil, 401},
		"without a key on the server, empty is wrong":  {"", []string{"X-API-Key:"}, 401},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resp := newTestServer(t, tc.serverKey).ask(t, "GET", "/api/capabilities", tc.headers...)
			require.Equal(t, tc.want, resp.StatusCode)
			if tc.want == 401 {
				require.Equal(t, "Unauthorized", resp.body)
				require.Equal(t, "text/plain; charset=utf-8", resp.Header.Get("Content-Type"))
			}
		})
	}
}

func TestTheKeyIsCheckedBeforeTheRoute(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, testKey)
	for _, tc := range []struct {
		method, path     string
		without, withKey int
	}{
		{"GET", "/api/sandboxes", 401, 200},
		{"GET", "/api/sandboxes?x=/health", 401, 200},
		{"GET", "http://elsewhere/api/sandboxes", 401, 200},
		{"GET", "/api/sandboxes/a1", 401, 200},
		{"GET", "/api/unknown", 401, 404},
		{"GET", "/api/", 401, 404},
		{"PUT", "/api/sandboxes/a1", 401, 405},
		{"HEAD", "/api/sandboxes", 401, 405},
		{"OPTIONS", "/api/sandboxes", 401, 405},
		{"BREW", "/api/sandboxes/a1/job", 401, 405},
		{"BREW", "/api/unknown", 401, 404},
		{"GET", "/api/sandboxes/", 401, 404},
		{"GET", "/api/sandboxes/a1/", 401, 404},
		{"GET", "//api/sandboxes", 401, 404},
		{"GET", "/./api/sandboxes", 401, 404},
		{"GET", "/x/../api/sandboxes", 401, 404},
		{"GET", "/api/../api/sandboxes", 401, 404},
		{"GET", "/api/../health", 401, 404},
		{"GET", "/API/sandboxes", 401, 404},
		{"GET", "/%61pi/sandboxes", 401, 404},
		{"GET", "/api%2fsandboxes", 401, 404},
		{"GET", "/%2e%2e/api/sandboxes", 401, 404},
		{"GET", "/api/sandboxes/%2e%2e%2fx", 401, 200},
		{"GET", "/api", 404, 404},
		{"GET", "/apix", 404, 404},
		{"GET", "/health/api/", 404, 404},
		{"GET", "/unknown", 404, 404},
		{"GET", "/health", 200, 200},
		{"GET", "/livez", 200, 200},
		{"HEAD", "/health", 405, 405},
		{"POST", "/health", 405, 405},
		{"GET", "/health/", 404, 404},
		{"GET", "/Health", 404, 404},
		{"GET", "/", 404, 404},
	} {
		t.Run(tc.method+" "+tc.path, func(t *testing.T) {
			t.Parallel()
			for headers, want := range map[string]int{"X-None: 1": tc.without, withKey: tc.withKey} {
				resp := s.ask(t, tc.method, tc.path, headers)
				require.Equal(t, want, resp.StatusCode, headers)
				wantBody := map[int]string{
					401: `Unauthorized`, 404: `{"detail":"Not Found"}`, 405: `{"detail":"Method Not Allowed"}`,
				}[want]
				if tc.method != "HEAD" && wantBody != "" {
					require.Equal(t, wantBody, resp.body)
				}
				require.Equal(t, want == 405, resp.Header.Get("Allow") != "", "Allow belongs to 405 alone")
				require.NotEmpty(t, resp.Header.Get("X-Request-Id"))
			}
		})
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	resp := newTestServer(t, "").ask(t, "GET", "/health")
	require.Equal(t, 200, resp.StatusCode)
	require.Equal(t, `{"status":"ok"}`, resp.body)
	require.Equal(t, "application/json", resp.Header.Get("Content-Type"))
}

func TestAllowNamesTheMethods(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, testKey)
	for path, want := range map[string][]string{
		"/api/sandboxes":             {"GET", "POST"},
		"/api/sandboxes/a1":          {"GET", "DELETE"},
		"/api/sandboxes/a1/presence": {"GET"},
		"/api/sandboxes/job":         {"GET", "DELETE"},
	} {
		resp := s.ask(t, "PATCH", path, withKey)
		require.Equal(t, 405, resp.StatusCode, path)
		require.ElementsMatch(t, want, strings.Split(resp.Header.Get("Allow"), ", "), path)
	}
}

func TestPathParametersArriveAsTheyWereMeant(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, testKey)
	for sent, want := range map[string]string{
		"19fa7291c0de4b1f": "19fa7291c0de4b1f",
		"a%31":             "a1",
		"..%2fx":           "../x",
		"..%2Fx":           "../x",
		"..":               "..",
		"é":                "é",
		"%c3%a9":           "é",
		"%e9":              "\ufffd", // not UTF-8; JSON shows it so
		"abc%0a":           "abc\n",
		"a%00":             "a\x00",
		"a+b":              "a+b",
		"a%2bb":            "a+b",
		"%252e":            "%2e",
		"a%20b":            "a b",
		"a;b":              "a;b",
		"A_b":              "A_b",
		":id":              ":id",
		"*":                "*",
	} {
		for _, method := range []string{"GET", "DELETE"} {
			resp := s.ask(t, method, "/api/sandboxes/"+sent, withKey)
			require.Equal(t, 200, resp.StatusCode, sent)
			var got map[string]string
			require.NoError(t, json.Unmarshal([]byte(resp.body), &got))
			require.Equal(t, want, got["id"], sent)
		}
	}
}

func TestBodiesEndAtOneMebibyte(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, testKey)
	chunked := func(n int) string { return fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", n, strings.Repeat("x", n)) }
	const tooLarge = `{"detail":"Request body is larger than 1048576 bytes"}`
	for name, tc := range map[string]struct {
		body    string
		headers []string
		status  int
		want    string
	}{
		"a body of the limit fits": {
			strings.Repeat("x", maxBody), []string{"Content-Length: 1048576"}, 200, `{"length":1048576}`,
		},
		"one byte more is refused": {
			strings.Repeat("x", maxBody+1), []string{"Content-Length: 1048577"}, 413, tooLarge,
		},
		"the announcement is enough": {"", []string{"Content-Length: 9000000000000"}, 413, tooLarge},
		"a client that waits for 100 is refused": {
			"", []string{"Content-Length: 1048577", "Expect: 100-continue"}, 413, tooLarge,
		},
		"chunks of the limit fit":               {chunked(maxBody), []string{"Transfer-Encoding: chunked"}, 200, `{"length":1048576}`},
		"chunks beyond it are refused":          {chunked(maxBody + 1), []string{"Transfer-Encoding: chunked"}, 413, tooLarge},
		"what is beyond the length is not read": {"xyz", []string{"Content-Length: 2"}, 200, `{"length":2}`},
		"a body that ends too soon is an error": {
			"xyz", []string{"Content-Length: 4", "X-Half-Close: 1"}, 400, `{"detail":"There was an error parsing the body"}`,
		},
		"chunks that end too soon are an error": {
			"5\r\nxyz", []string{"Transfer-Encoding: chunked", "X-Half-Close: 1"}, 400, `{"detail":"There was an error parsing the body"}`,
		},
		"no body is an empty one": {"", nil, 200, `{"length":0}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resp := s.post(t, tc.body, tc.headers...)
			require.Equal(t, tc.status, resp.StatusCode)
			require.Equal(t, tc.want, resp.body)
			if tc.status == 413 {
				require.True(t, resp.Close, "the rest of a large body is not read")
			}
		})
	}

	t.Run("without the key nothing is read", func(t *testing.T) {
		t.Parallel()
		resp := s.ask(t, "POST", "/api/sandboxes", "Content-Length: 9000000000000")
		require.Equal(t, 401, resp.StatusCode)
	})
}

func TestRequestIDs(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, testKey)
	for name, tc := range map[string]struct {
		sent   string
		echoed bool
	}{
		"a sane one is echoed":               {"gateway-1/42", true},
		"128 characters are sane":            {strings.Repeat("x", 128), true},
		"129 characters are not":             {strings.Repeat("x", 129), false},
		"an empty one is not":                {"", false},
		"spaces inside are not":              {"a b", false},
		"letters beyond ASCII are not":       {"é", false},
		"a control character inside is not":  {"a\tb", false},
		"quotes and braces are nobody's woe": {`"}{`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resp := s.ask(t, "GET", "/health", "X-Request-Id: "+tc.sent)
			got := resp.Header.Get("X-Request-Id")
			if tc.echoed {
				require.Equal(t, tc.sent, got)
				return
			}
			require.NoError(t, uuid.Validate(got))
		})
	}
}

func TestPanicsStayInTheLog(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, testKey)
	resp := s.ask(t, "GET", "/api/panic", withKey)
	require.Equal(t, 500, resp.StatusCode)
	require.Equal(t, `{"detail":"Internal Server Error"}`, resp.body)
	id := resp.Header.Get("X-Request-Id")
	require.NoError(t, uuid.Validate(id))

	s.Close() // waits for the handlers, and so for the log
	lines := logLines(t, s.log)
	require.Len(t, lines, 2)
	require.Equal(t, "handler panicked", lines[0]["msg"])
	require.Equal(t, id, lines[0]["request_id"])
	require.Equal(t, "secret of the panic", lines[0]["panic"])
	require.Contains(t, lines[0]["stack"], "middleware_test.go")
	require.Equal(t, "request", lines[1]["msg"])
	require.EqualValues(t, 500, lines[1]["status"])
}

func TestAPanicInTheMiddleOfAReplyBreaksTheConnection(t *testing.T) {
	t.Parallel()
	for path, panics := range map[string]int{"/api/panic/late": 1, "/api/panic/abort": 0} {
		s := newTestServer(t, testKey)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, http.NoBody)
		require.NoError(t, err)
		req.Header.Set("X-API-Key", testKey)
		resp, err := s.Client().Do(req)
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			require.NoError(t, resp.Body.Close())
		}
		require.Error(t, err, "half a body does not pass for a whole one")
		s.Close()
		lines := logLines(t, s.log)
		require.Len(t, lines, panics+1, "the access log has it too, and nobody else")
		require.Equal(t, "request", lines[panics]["msg"])
	}
}

func TestTheAccessLogHoldsNoSecrets(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, testKey)
	s.post(t, `{"private":1}`, "Content-Length: 13", "X-Request-Id: theirs")
	s.ask(t, "GET", "/api/sandboxes/a1?token=query-secret", withKey)
	s.ask(t, "GET", "/api/nowhere/path-secret", "X-API-Key: wrong-secret")
	s.ask(t, "GET", "/api/fault", withKey)
	s.ask(t, "GET", "/health")
	s.Close()

	lines := slices.DeleteFunc(logLines(t, s.log), func(line map[string]any) bool { return line["msg"] != "request" })
	require.Len(t, lines, 5)
	for i, want := range []struct {
		level, method, route string
		status               int
		id, key              any
	}{
		{"INFO", "POST", "/api/sandboxes", 200, nil, "default"},
		{"INFO", "GET", "/api/sandboxes/:id", 200, "a1", "default"},
		{"INFO", "GET", "", 401, nil, nil},
		{"INFO", "GET", "/api/fault", 500, nil, "default"},
		{"DEBUG", "GET", "/health", 200, nil, nil},
	} {
		require.Equal(t, want.id, lines[i]["sandbox_id"])
		require.Equal(t, want.key, lines[i]["key_name"])
		require.Equal(t, want.level, lines[i]["level"])
		require.Equal(t, want.method, lines[i]["method"])
		require.Equal(t, want.route, lines[i]["route"])
		require.EqualValues(t, want.status, lines[i]["status"])
		require.NoError(t, uuid.Validate(lines[i]["request_id"].(string)))
		require.Positive(t, lines[i]["duration"])
	}
	require.Equal(t, "theirs", lines[0]["client_request_id"])
	require.Equal(t, "secret of the fault", lines[3]["error"])
	for _, secret := range []string{testKey, "wrong-secret", "query-secret", "path-secret", "private"} {
		require.NotContains(t, s.log.String(), secret)
	}
}

func TestAMissingKeyIsSaidOnceAtTheStart(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]int{"": 1, testKey: 0} {
		require.Equal(t, want, strings.Count(newTestServer(t, key).log.String(), "no API key is set"))
	}
}

func logLines(t *testing.T, log *syncBuffer) []map[string]any {
	t.Helper()
	var lines []map[string]any
	for dec := json.NewDecoder(strings.NewReader(log.String())); dec.More(); {
		var line map[string]any
		require.NoError(t, dec.Decode(&line))
		lines = append(lines, line)
	}
	return lines
}
