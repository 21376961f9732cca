package main

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
)

func TestEveryTimeInAnExpressionIsDivided(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`rate(a[5m])`:                               `rate(a[5s])`,
		`a offset 1h`:                               `a offset 1m`,
		`max_over_time(a[10m:1m] offset 30m)`:       `max_over_time(a[10s:1s] offset 30s)`,
		`max(oldest_age_seconds) > 60`:              `max(oldest_age_seconds) > 1`,
		`waiting_5m > 60`:                           `waiting_5m > 60`,
		`a unless on () (max_over_time(b[1h]) > 0)`: `a unless on () (max_over_time(b[1m]) > 0)`,
	} {
		got, err := haste(60).expression(in)
		if err != nil || got != want {
			t.Errorf("%s became %s (%v), not %s", in, got, err, want)
		}
	}
}

func TestTimesOfAGroupAreDividedAndNamesAreNot(t *testing.T) {
	t.Parallel()
	g := rulefmt.RuleGroup{Interval: model.Duration(15 * time.Second), Rules: []rulefmt.Rule{
		{Record: "a:rate5m", Expr: "sum(rate(a[5m]))"},
		{Alert: "A", Expr: "a:rate5m > 1", For: model.Duration(2 * time.Minute), KeepFiringFor: model.Duration(time.Hour)},
	}}
	if err := haste(60).group(&g); err != nil {
		t.Fatal(err)
	}
	if g.Interval != tick || time.Duration(g.Rules[1].For) != 2*time.Second || time.Duration(g.Rules[1].KeepFiringFor) != time.Minute {
		t.Errorf("times are %+v", g)
	}
	if g.Rules[0].Record != "a:rate5m" || !strings.HasPrefix(g.Rules[1].Expr, "a:rate5m") {
		t.Errorf("names are %+v", g.Rules)
	}
}

func TestWhatCannotBeReadIsRefused(t *testing.T) {
	t.Parallel()
	for _, expr := range []string{"rate(a[5m", "rate(a[$__rate_interval])"} {
		if got, err := haste(60).expression(expr); err == nil {
			t.Errorf("%s became %s", expr, got)
		}
	}
}
