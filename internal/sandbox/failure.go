package sandbox

import (
	"fmt"
	"time"
)

// A Reason names why something did not happen, in one word that fits a metric label.
type Reason string

// Reasons of failures, which are final.
const (
	ReasonCapacity  Reason = "Capacity"         // the Pod exists with fewer shell sessions than asked for
	ReasonBroker    Reason = "Broker"           // the Pod exists without the broker that was asked for
	ReasonNameTaken Reason = "NameTaken"        // an object of that name exists and is not a sandbox
	ReasonQuota     Reason = "QuotaExceeded"    // a ResourceQuota refused the object
	ReasonRefused   Reason = "Refused"          // Kubernetes refused the object: admission, validation, RBAC
	ReasonDeadline  Reason = "DeadlineExceeded" // not carried out within the deadline of the intent
	ReasonMalformed Reason = "MalformedIntent"  // the message is not an intent
)

// Reasons of retries, which pass.
const (
	ReasonTerminating Reason = "Terminating" // an object of that name is on its way out
	ReasonLeftover    Reason = "Leftover"    // an object of an ended life was in the way and has been deleted
	ReasonConflict    Reason = "Conflict"    // somebody else changed the object meanwhile
	ReasonThrottled   Reason = "Throttled"   // 429
	ReasonServer      Reason = "ServerError" // 5xx
	ReasonUnavailable Reason = "Unavailable" // no answer: refused, timed out
	ReasonNotReady    Reason = "NotReady"    // a precondition outside, such as the ServiceAccount, is not there yet
)

// Object kinds, for errors that concern one of the two.
const (
	Pod     = "Pod"
	Service = "Service"
)

// A Failure is final: trying again would fail again. The intent ends with it.
type Failure struct {
	Reason  Reason
	Object  string // Pod, Service, or empty
	Message string // for the gateway; carries Kubernetes' own words
}

func (f *Failure) Error() string { return fmt.Sprintf("%s: %s", f.Reason, f.Message) }

// A Retry passes: the same attempt may succeed later.
type Retry struct {
	Reason Reason
	Object string        // Pod, Service, or empty
	After  time.Duration // not before; 0 leaves the delay to the caller's backoff
	Err    error
}

func (r *Retry) Error() string { return r.Err.Error() }

func (r *Retry) Unwrap() error { return r.Err }
