package config

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
)

// Help lists every variable of a program with its meaning and default, group by group.
func Help[C any](w io.Writer) error {
	var cfg C
	all, err := settings(&cfg)
	if err != nil {
		return err
	}
	width := 0
	for _, s := range all {
		width = max(width, len(s.name))
	}
	var text strings.Builder
	group := ""
	for _, s := range all {
		if s.group != group {
			group = s.group
			fmt.Fprintf(&text, "\n%s:\n", group)
		}
		preset := "empty"
		if s.preset != "" {
			preset = s.preset
		}
		fmt.Fprintf(&text, "  %-*s  %s (default %s)\n", width, s.name, s.help, preset)
	}
	_, err = io.WriteString(w, text.String())
	return err
}

// Print writes the effective value of every variable as NAME=value, one a line, in the order of Help. Secrets are masked.
func Print[C any](w io.Writer, cfg C) error {
	all, err := settings(&cfg)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, s := range all {
		value := s.mask(s.effective())
		if strings.ContainsFunc(value, unicode.IsControl) {
			// A line break would make one variable look like two.
			value = strconv.Quote(value)
		}
		fmt.Fprintf(&text, "%s=%s\n", s.name, value)
	}
	_, err = io.WriteString(w, text.String())
	return err
}
