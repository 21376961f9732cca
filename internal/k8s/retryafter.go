package k8s

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// retryAfter is the header on which client-go acts.
const retryAfter = "Retry-After"

// maxStatusBody bounds what is read of an error, in bytes.
const maxStatusBody = 64 << 10

// withoutHiddenRetries is a transport under which an error reaches the caller at once. client-go sends a request again, up
// to ten times, as long as the answer is 429 or 5xx and has a Retry-After in seconds: a slot would be blocked for as long as
// the server likes, and the real policy never asked. Without the header it does not; the delay stays known, because it
// moves into the Status in the body, where apierrors.SuggestsClientDelay finds it.
//
// What client-go still repeats by itself, within the timeout of the request, is a GET whose connection broke.
func withoutHiddenRetries(next http.RoundTripper) http.RoundTripper { return singleTry{next} }

type singleTry struct{ next http.RoundTripper }

// WrappedRoundTripper lets client-go find the transport inside: it complains when it cannot cancel a request there.
func (t singleTry) WrappedRoundTripper() http.RoundTripper { return t.next }

func (t singleTry) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode < http.StatusInternalServerError {
		return resp, err
	}
	seconds, ok := delay(resp.Header)
	if !ok {
		return resp, nil
	}
	// A body that cannot be read to its end still is what the server had to say.
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxStatusBody))
	_ = resp.Body.Close()
	body, err = json.Marshal(delayed(req, resp.StatusCode, body, seconds))
	if err != nil {
		return nil, err
	}
	resp.Header.Del(retryAfter)
	resp.Header.Set("Content-Type", runtime.ContentTypeJSON)
	resp.Header.Set("Content-Length", strconv.Itoa(len(body)))
	resp.ContentLength = int64(len(body))
	resp.TransferEncoding = nil
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// delay is what client-go would wait for. A date, which the header may hold too, it does not look at.
func delay(header http.Header) (seconds int, ok bool) {
	seconds, err := strconv.Atoi(header.Get(retryAfter))
	return seconds, err == nil
}

// delayed is the Status in body, or one made of the status code when body is none, as with Priority and Fairness, which
// answers in plain text. It carries the delay.
func delayed(req *http.Request, code int, body []byte, seconds int) metav1.Status {
	status := apierrors.NewGenericServerResponse(code, req.Method, schema.GroupResource{}, "", string(body), 0, true).ErrStatus
	if obj, _, err := codecs.UniversalDeserializer().Decode(body, nil, nil); err == nil {
		if s, ok := obj.(*metav1.Status); ok && s.Status == metav1.StatusFailure {
			status = *s
		}
	}
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	if status.Details == nil {
		status.Details = &metav1.StatusDetails{}
	}
	if status.Details.RetryAfterSeconds == 0 {
		status.Details.RetryAfterSeconds = int32(min(max(seconds, 0), math.MaxInt32))
	}
	return status
}
