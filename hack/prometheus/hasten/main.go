// Command hasten makes a copy of Prometheus rules in which time runs faster: hasten FACTOR IN OUT. Whatever is a time is divided by
// the factor: ranges, offsets and steps in expressions, thresholds of gauges that are ages, intervals, and how long an alert waits.
// So a test sees in seconds what takes minutes in production. Names stay as they are.
package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "hasten:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return errors.New("usage: hasten FACTOR IN OUT")
	}
	factor, err := strconv.Atoi(args[0])
	if err != nil || factor < 1 {
		return fmt.Errorf("factor %q: must be a number above 0", args[0])
	}
	groups, errs := rulefmt.ParseFile(args[1], false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	h := haste(factor)
	for i := range groups.Groups {
		if err := h.group(&groups.Groups[i]); err != nil {
			return fmt.Errorf("group %s: %w", groups.Groups[i].Name, err)
		}
	}
	content, err := yaml.Marshal(groups)
	if err != nil {
		return err
	}
	return os.WriteFile(args[2], content, 0o644)
}

// haste is by how much time runs faster.
type haste int

// tick is the shortest interval at which rules are evaluated: the one at which tests scrape.
const tick = model.Duration(2 * time.Second)

func (h haste) group(g *rulefmt.RuleGroup) error {
	// A group without an interval has the one of the server.
	if g.Interval > 0 {
		g.Interval = max(tick, g.Interval/model.Duration(h))
	}
	for i := range g.Rules {
		r := &g.Rules[i]
		r.For /= model.Duration(h)
		r.KeepFiringFor /= model.Duration(h)
		expr, err := h.expression(r.Expr)
		if err != nil {
			return fmt.Errorf("%s%s: %w", r.Record, r.Alert, err)
		}
		r.Expr = expr
	}
	return nil
}

func (h haste) expression(text string) (string, error) {
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		return "", err
	}
	var problem error
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.MatrixSelector:
			problem = errors.Join(problem, plain(n.RangeExpr))
			n.Range /= time.Duration(h)
		case *parser.SubqueryExpr:
			problem = errors.Join(problem, plain(n.RangeExpr), plain(n.StepExpr), plain(n.OriginalOffsetExpr))
			n.Range /= time.Duration(h)
			n.Step /= time.Duration(h)
			n.OriginalOffset /= time.Duration(h)
		case *parser.VectorSelector:
			problem = errors.Join(problem, plain(n.OriginalOffsetExpr))
			n.OriginalOffset /= time.Duration(h)
		case *parser.BinaryExpr:
			if limit, ok := n.RHS.(*parser.NumberLiteral); ok && n.Op.IsComparisonOperator() && isAge(n.LHS) {
				limit.Val /= float64(h)
			}
		}
		return nil
	})
	return expr.String(), problem
}

// plain refuses a duration that is itself an expression: its value would not be seen here.
func plain(d *parser.DurationExpr) error {
	if d != nil {
		return errors.New("durations that are expressions are not supported")
	}
	return nil
}

// isAge tells whether the value of an expression is an age in seconds, by the name of its metric.
func isAge(expr parser.Expr) bool {
	age := false
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if v, ok := node.(*parser.VectorSelector); ok {
			age = strings.HasSuffix(v.Name, "_age_seconds")
		}
		return nil
	})
	return age
}
