package config

import (
	"bytes"
	"flag"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestEveryVariableIsTested(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, cfg := range []any{&API{}, &Worker{}, &Standalone{}} {
		all, err := settings(cfg)
		require.NoError(t, err)
		for _, s := range all {
			known[s.name] = true
			require.NotEmpty(t, s.help, "help of %s", s.name)
			require.NotEmpty(t, s.group, "group of %s", s.name)
		}
	}
	require.Equal(t, slices.Sorted(maps.Keys(known)), slices.Sorted(maps.Keys(variables)))
}

func TestAnAbsentVariableHasItsDefault(t *testing.T) {
	t.Parallel()
	for name, v := range variables {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			value, err := effective(t, name, nil)
			require.NoError(t, err)
			require.Equal(t, v.absent, value)
		})
	}
}

func TestAnEmptyVariableIsEmptyOrRefusedButNeverItsDefault(t *testing.T) {
	t.Parallel()
	for name, v := range variables {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := map[string]string{name: ""}
			maps.Copy(env, v.with)
			value, err := effective(t, name, env)
			if v.empty != "" {
				requireLine(t, v.empty, err)
				return
			}
			require.NoError(t, err)
			require.Empty(t, value)
		})
	}
}

func TestAGoodValueIsTaken(t *testing.T) {
	t.Parallel()
	for name, v := range variables {
		for value, want := range v.good {
			t.Run(name+"="+value, func(t *testing.T) {
				t.Parallel()
				env := map[string]string{name: value}
				maps.Copy(env, v.with)
				got, err := effective(t, name, env)
				require.NoError(t, err)
				require.Equal(t, want, got)
			})
		}
	}
}

func TestABadValueIsRefusedInOneLineThatSaysWhatIsAllowed(t *testing.T) {
	t.Parallel()
	for name, v := range variables {
		for value, want := range v.bad {
			t.Run(name+"="+value, func(t *testing.T) {
				t.Parallel()
				env := map[string]string{name: value}
				maps.Copy(env, v.with)
				_, err := effective(t, name, env)
				requireLine(t, want, err)
				require.NotContains(t, err.Error(), "s3")
			})
		}
	}
}

func TestAllProblemsAreReportedAtOnce(t *testing.T) {
	t.Parallel()
	_, err := Load[API](lookup(map[string]string{
		"CREATE_WAIT":          "1h",
		"DELETE_WAIT":          "x",
		"NATS_PASSWORD":        "s3cret",
		"NATS_STREAM_REPLICAS": "2",
		"K8S_QPS":              "0",
		"LOG_LEVEL":            "",
	}))
	require.Error(t, err)
	require.Equal(t, []string{
		`DELETE_WAIT="x": must be a duration, such as 500ms, 10s or 1h`,
		`LOG_LEVEL="": set but empty; must be debug, info, warn or error`,
		`CREATE_WAIT=1h0m0s: must be 0s to 25s; clients give up after 30s`,
		`NATS_PASSWORD=******: has no user; set NATS_USER too`,
		`NATS_STREAM_REPLICAS=2: must be 1, 3 or 5`,
		`K8S_QPS=0: must be -1 or above 0`,
	}, strings.Split(err.Error(), "\n"))
}

func TestOnlyOneWayToAuthenticateAtNATSIsTaken(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		env  map[string]string
		want string
	}{
		"a file and a user":  {map[string]string{"NATS_CREDS": "/c", "NATS_USER": "u"}, `NATS_CREDS="/c": excludes NATS_USER and NATS_TOKEN; set only one of them`},
		"a file and a token": {map[string]string{"NATS_CREDS": "/c", "NATS_TOKEN": "s3cret"}, `NATS_CREDS="/c": excludes NATS_USER and NATS_TOKEN; set only one of them`},
		"a user and a token": {map[string]string{"NATS_USER": "u", "NATS_TOKEN": "s3cret"}, `NATS_USER="u": excludes NATS_TOKEN; set only one of them`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Load[Worker](lookup(test.env))
			require.EqualError(t, err, test.want)
		})
	}
}

func TestSeveralNATSServersMayHoldReplicas(t *testing.T) {
	t.Parallel()
	for _, replicas := range []string{"3", "5"} {
		cfg, err := Load[Worker](lookup(map[string]string{"NATS_STREAM_REPLICAS": replicas}))
		require.NoError(t, err)
		require.Equal(t, replicas, map[int]string{3: "3", 5: "5"}[cfg.Jobs.Replicas])
	}
}

func TestAMistakeInATagIsAnError(t *testing.T) {
	t.Parallel()
	for name, load := range map[string]func() error{
		"an option that does not exist": func() error {
			type group struct {
				X string `env:"X, required"`
			}
			_, err := Load[struct{ G group }](lookup(nil))
			return err
		},
		"a setting outside a group": func() error {
			_, err := Load[struct {
				X string `env:"X"`
			}](lookup(nil))
			return err
		},
		"a kind of secret that does not exist": func() error {
			type group struct {
				X string `env:"X" secret:"yes"`
			}
			_, err := Load[struct{ G group }](lookup(nil))
			return err
		},
		"a field that cannot be set": func() error {
			type group struct {
				x string `env:"X"` //nolint:unused // the point of the test
			}
			_, err := Load[struct{ G group }](lookup(nil))
			return err
		},
		"a type that cannot be read": func() error {
			type group struct {
				X []string `env:"X, default=a"`
			}
			_, err := Load[struct{ G group }](lookup(nil))
			return err
		},
		"a number without a default": func() error {
			type group struct {
				X int `env:"X"`
			}
			_, err := Load[struct{ G group }](lookup(nil))
			return err
		},
		"a default that cannot be read": func() error {
			type group struct {
				X time.Duration `env:"X, default=10"`
			}
			_, err := Load[struct{ G group }](lookup(nil))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Error(t, load())
		})
	}
}

func TestSyncIntervalSaysWhetherEveryWriteIsSynced(t *testing.T) {
	t.Parallel()
	always, err := Load[Standalone](lookup(nil))
	require.NoError(t, err)
	require.True(t, always.Store.Sync.Always())

	seldom, err := Load[Standalone](lookup(map[string]string{"NATS_SYNC_INTERVAL": "10s"}))
	require.NoError(t, err)
	require.False(t, seldom.Store.Sync.Always())
	require.Equal(t, 10*time.Second, time.Duration(seldom.Store.Sync))
}

func TestTheLoggerWritesAsConfigured(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		env  map[string]string
		want string
	}{
		"JSON from info up by default": {nil, `{"level":"INFO","msg":"told"}` + "\n"},
		"text when asked for":          {map[string]string{"LOG_FORMAT": "text"}, "level=INFO msg=told\n"},
		"nothing below the level":      {map[string]string{"LOG_LEVEL": "warn"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, err := Load[API](lookup(test.env))
			require.NoError(t, err)
			var out bytes.Buffer
			record := slog.NewRecord(time.Time{}, slog.LevelInfo, "told", 0)
			if handler := cfg.Telemetry.Logger(&out).Handler(); handler.Enabled(t.Context(), record.Level) {
				require.NoError(t, handler.Handle(t.Context(), record))
			}
			require.Equal(t, test.want, out.String())
		})
	}
}

func TestHelpListsEveryVariableWithItsDefault(t *testing.T) {
	t.Parallel()
	golden(t, "api.help", func(w *bytes.Buffer) error { return Help[API](w) })
	golden(t, "worker.help", func(w *bytes.Buffer) error { return Help[Worker](w) })
	golden(t, "standalone.help", func(w *bytes.Buffer) error { return Help[Standalone](w) })
}

func TestPrintShowsEffectiveValuesWithoutSecrets(t *testing.T) {
	t.Parallel()
	env := map[string]string{
		"PROVISIONER_API_KEY":   "s3cret",
		"NATS_URL":              "nats://u:s3cret@a:4222,nats://b:4222",
		"NATS_USER":             "me",
		"NATS_PASSWORD":         "s3cret",
		"K8S_API_SERVER":        "https://u:s3cret@k:6443",
		"LARK_CLI_BROKER_IMAGE": "two\nlines",
		"NODE_HOST":             "$HOME",
		"JOB_RETENTION":         "90m",
		"LOG_LEVEL":             "WARN",
	}
	golden(t, "api.config", func(w *bytes.Buffer) error { return printed[API](w, env) })
	golden(t, "worker.config", func(w *bytes.Buffer) error { return printed[Worker](w, env) })
	golden(t, "standalone.config", func(w *bytes.Buffer) error { return printed[Standalone](w, env) })
}

func printed[C any](w *bytes.Buffer, env map[string]string) error {
	cfg, err := Load[C](lookup(env))
	if err != nil {
		return err
	}
	return Print(w, cfg)
}

// golden compares what is written with a file below testdata.
func golden(t *testing.T, name string, write func(*bytes.Buffer) error) {
	t.Helper()
	var got bytes.Buffer
	require.NoError(t, write(&got))
	require.NotContains(t, got.String(), "s3cret")
	file := filepath.Join("testdata", name+".golden")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, got.Bytes(), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err, "run the test with -update")
	require.Equal(t, string(want), got.String())
}

// requireLine wants a single line. Of one that ends with an ellipsis another package owns the rest.
func requireLine(t *testing.T, want string, err error) {
	t.Helper()
	require.Error(t, err)
	begin, open := strings.CutSuffix(want, "…")
	if !open {
		require.EqualError(t, err, want)
		return
	}
	require.Regexp(t, "^"+regexp.QuoteMeta(begin)+`.{10,}$`, err.Error())
}

// effective loads the program that knows the variable and returns the value, as --print-config would show it.
func effective(t *testing.T, name string, env map[string]string) (string, error) {
	t.Helper()
	cfg, err := Load[Standalone](lookup(env))
	if value, found := find(t, &cfg, name); found {
		return value, err
	}
	other, err := Load[Worker](lookup(env))
	value, found := find(t, &other, name)
	require.True(t, found, "no program knows %s", name)
	return value, err
}

func find(t *testing.T, cfg any, name string) (string, bool) {
	t.Helper()
	all, err := settings(cfg)
	require.NoError(t, err)
	i := slices.IndexFunc(all, func(s setting) bool { return s.name == name })
	if i < 0 {
		return "", false
	}
	return all[i].mask(all[i].effective()), true
}

func lookup(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, found := env[name]
		return value, found
	}
}
