package sandbox

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestAGenerationIsReadBackFromItsAnnotation(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := Generation{Stream: rapid.Int64().Draw(t, "stream"), Seq: rapid.Uint64().Draw(t, "seq")}
		require.Equal(t, g, ParseGeneration(g.String()))
	})
}

func TestWhatIsNoGenerationIsOlderThanEveryIntent(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"nothing":               "",
		"no stream":             "/7",
		"no sequence":           "7/",
		"a sequence alone":      "7",
		"words":                 "one/two",
		"a third part":          "1/2/3",
		"a sequence below zero": "1/-2",
		"white space":           " 1/2",
		"beyond 64 bits":        "1/18446744073709551616",
		"a stream beyond range": "9223372036854775808/1",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := ParseGeneration(text)
			require.Equal(t, Generation{}, g)
			require.Zero(t, g.In(1))
			require.Zero(t, g.In(0), "it is older than all in every stream")
		})
	}
}

func TestAGenerationOfAnotherStreamIsOlderThanAll(t *testing.T) {
	t.Parallel()
	g := Generation{Stream: 100, Seq: 9}
	require.EqualValues(t, 9, g.In(100))
	require.Zero(t, g.In(101))
	require.Zero(t, g.In(99))
}

func TestLineage(t *testing.T) {
	t.Parallel()
	const stream = 100
	type answers struct{ accepts, condemns, precedes bool }
	for name, test := range map[string]struct {
		lineage Lineage
		object  Generation
		want    answers
	}{
		"its own object serves": {
			Lineage{Generation: Generation{stream, 7}}, Generation{stream, 7}, answers{accepts: true},
		},
		"an object of an earlier create serves when there was no deletion": {
			Lineage{Generation: Generation{stream, 7}}, Generation{stream, 3}, answers{accepts: true, precedes: true},
		},
		"an object that another provisioner made serves when there was no deletion": {
			Lineage{Generation: Generation{stream, 7}}, Generation{}, answers{accepts: true, precedes: true},
		},
		"an object of a lost stream serves when there was no deletion": {
			Lineage{Generation: Generation{stream, 7}}, Generation{stream - 1, 9}, answers{accepts: true, precedes: true},
		},
		"an object just above the fence serves": {
			Lineage{Generation: Generation{stream, 7}, Fence: 5}, Generation{stream, 6}, answers{accepts: true, precedes: true},
		},
		"an object at the fence is a leftover": {
			Lineage{Generation: Generation{stream, 7}, Fence: 5}, Generation{stream, 5}, answers{precedes: true},
		},
		"an object below the fence is a leftover": {
			Lineage{Generation: Generation{stream, 7}, Fence: 5}, Generation{stream, 2}, answers{precedes: true},
		},
		"an object of a lost stream is a leftover behind a fence, whatever its number": {
			Lineage{Generation: Generation{stream, 7}, Fence: 5}, Generation{stream - 1, 6}, answers{precedes: true},
		},
		"an object that another provisioner made is a leftover behind a fence": {
			Lineage{Generation: Generation{stream, 7}, Fence: 5}, Generation{}, answers{precedes: true},
		},
		"an object of a failed intent is condemned": {
			Lineage{Generation: Generation{stream, 7}, Settled: 3, Failed: 5}, Generation{stream, 5}, answers{condemns: true, precedes: true},
		},
		"an object between the promised and the failed is condemned": {
			Lineage{Generation: Generation{stream, 7}, Settled: 3, Failed: 5}, Generation{stream, 4}, answers{condemns: true, precedes: true},
		},
		"an object that was promised is not condemned": {
			Lineage{Generation: Generation{stream, 7}, Settled: 3, Failed: 5}, Generation{stream, 3}, answers{accepts: true, precedes: true},
		},
		"an object made after the failure is not condemned": {
			Lineage{Generation: Generation{stream, 7}, Settled: 3, Failed: 5}, Generation{stream, 6}, answers{accepts: true, precedes: true},
		},
		"an object that another provisioner made is never condemned": {
			Lineage{Generation: Generation{stream, 7}, Failed: 6}, Generation{}, answers{accepts: true, precedes: true},
		},
		"an object of a lost stream is never condemned": {
			Lineage{Generation: Generation{stream, 7}, Failed: 6}, Generation{stream - 1, 4}, answers{accepts: true, precedes: true},
		},
		"a successor does not precede": {
			Lineage{Generation: Generation{stream, 7}, Fence: 5}, Generation{stream, 8}, answers{accepts: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, answers{
				accepts:  test.lineage.Accepts(test.object),
				condemns: test.lineage.Condemns(test.object),
				precedes: test.lineage.Precedes(test.object),
			})
		})
	}
}

// What is at once undone by one worker and accepted by another would be promised and then removed.
func TestNothingIsBothAcceptedAndCondemned(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		small := rapid.Uint64Range(0, 8)
		stream := rapid.Int64Range(1, 2)
		l := Lineage{
			Generation: Generation{Stream: 1, Seq: small.Draw(t, "seq")},
			Fence:      small.Draw(t, "fence"), Settled: small.Draw(t, "settled"), Failed: small.Draw(t, "failed"),
		}
		object := Generation{Stream: stream.Draw(t, "object stream"), Seq: small.Draw(t, "object")}
		require.False(t, l.Accepts(object) && l.Condemns(object), "%+v of %+v", object, l)
	})
}
