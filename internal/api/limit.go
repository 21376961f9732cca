package api

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"
	"golang.org/x/time/rate"
)

// The headers of a rate limit, as in the IETF's draft-ietf-httpapi-ratelimit-headers up to its version 7.
const (
	headerLimit     = "RateLimit-Limit"     // requests at once, after a time without any
	headerRemaining = "RateLimit-Remaining" // requests that are left of these
	headerReset     = "RateLimit-Reset"     // seconds until all of these are
)

// burst is the number of requests that a key may send at once.
func (c Config) burst() int {
	if c.RateBurst > 0 {
		return c.RateBurst
	}
	return max(1, int(math.Ceil(c.RateLimit)))
}

// limitRate lets each key send RATE_LIMIT_RPS requests per second, with a bucket of its own. It does nothing when that is 0.
func limitRate(cfg Config, ring keyring, refused func(keyName string)) gin.HandlerFunc {
	if cfg.RateLimit <= 0 {
		return func(*gin.Context) {}
	}
	buckets := make(map[string]*rate.Limiter, len(ring))
	for _, key := range ring {
		buckets[key.name] = rate.NewLimiter(rate.Limit(cfg.RateLimit), cfg.burst())
	}
	return func(c *gin.Context) {
		bucket := buckets[keyName(c)]
		if bucket == nil { // no key was needed
			return
		}
		now := time.Now()
		allowed := bucket.AllowN(now, 1)
		left := bucket.TokensAt(now)
		c.Header(headerLimit, strconv.Itoa(cfg.burst()))
		c.Header(headerRemaining, strconv.Itoa(max(0, int(left))))
		c.Header(headerReset, strconv.Itoa(wholeSeconds((float64(cfg.burst())-left)/cfg.RateLimit)))
		if allowed {
			return
		}
		refused(keyName(c))
		wait := time.Duration((1 - left) / cfg.RateLimit * float64(time.Second))
		replyError(c, &statusError{
			Status:     http.StatusTooManyRequests,
			Detail:     fmt.Sprintf("Too many requests with this key: at most %v per second", cfg.RateLimit),
			RetryAfter: max(wait, minRetryAfter),
		})
	}
}

func wholeSeconds(seconds float64) int { return max(0, int(math.Ceil(seconds))) }
