package faults_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/testenv"
)

// Two apis, three workers, and every id at once: created, repeated and deleted at random. One hand leads each id, so that
// it is known what was promised last, but what it asks for it often asks of both apis at once.
//
// It takes all that the machine has, and so runs alone.
func TestWhateverIsAskedTheLastAnswerHolds(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	d := testenv.Processes(t, testenv.ClusterIP(), testenv.APIs(2), testenv.Workers(3))

	var mu sync.Mutex
	promised := map[string]string{} // by id, the UID of its Pod
	var broken []string
	ids := names("id", 200)
	inParallel(len(ids), 32, func(i int) {
		uid, err := play(t, d, ids[i], rand.New(rand.NewPCG(seed, uint64(i))))
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			broken = append(broken, err.Error())
		}
		if uid != "" {
			promised[ids[i]] = uid
		}
	})
	require.Empty(t, broken)

	d.NATS.WaitUntilQuiet(30 * time.Second)
	pods, services := living(d)
	require.Equal(t, promised, pods)
	for id := range promised {
		require.NotEmpty(t, services[id], "Service of %s", id)
	}
	require.Len(t, services, len(promised))
	list := d.APIs[1].Client().List(t.Context()).Want(t, http.StatusOK)
	require.Equal(t, len(promised), list.Body.Count)
}

// play asks for one id again and again. It returns the UID of the Pod that was promised last, or "" when it was deleted last.
func play(t *testing.T, d *testenv.Deployment[*testenv.Process], id string, dice *rand.Rand) (string, error) {
	uid := ""
	for step := range 3 + dice.IntN(5) {
		if dice.IntN(3) == 0 {
			if err := askBoth(d, dice, func(c testenv.Client) testenv.Response { return c.Delete(t.Context(), id) }); err != nil {
				return "", fmt.Errorf("%s, step %d, delete: %w", id, step, err)
			}
			if r := anyAPI(d, dice).Get(t.Context(), id); r.Code != http.StatusNotFound {
				return "", fmt.Errorf("%s, step %d: is there after its delete: %v", id, step, r)
			}
			uid = ""
			continue
		}
		if err := askBoth(d, dice, func(c testenv.Client) testenv.Response { return c.Create(t.Context(), id, testenv.Prefer("wait=25")) }); err != nil {
			return "", fmt.Errorf("%s, step %d, create: %w", id, step, err)
		}
		r := anyAPI(d, dice).Presence(t.Context(), id)
		if r.Code != http.StatusOK || r.Body.UID == nil {
			return "", fmt.Errorf("%s, step %d: is not there after its create: %v", id, step, r)
		}
		if uid != "" && *r.Body.UID != uid {
			return "", fmt.Errorf("%s, step %d: Pod %s was promised and is %s now", id, step, uid, *r.Body.UID)
		}
		uid = *r.Body.UID
	}
	return uid, nil
}

// askBoth asks one api, or both at the same time, and wants 200 of all.
func askBoth(d *testenv.Deployment[*testenv.Process], dice *rand.Rand, ask func(testenv.Client) testenv.Response) error {
	asked := d.APIs
	if first := dice.IntN(3); first < len(d.APIs) {
		asked = d.APIs[first : first+1]
	}
	answers := make(chan testenv.Response, len(asked))
	for _, api := range asked {
		go func() { answers <- ask(api.Client()) }()
	}
	var err error
	for range asked {
		if r := <-answers; r.Code != http.StatusOK {
			err = fmt.Errorf("%v", r)
		}
	}
	return err
}

func anyAPI(d *testenv.Deployment[*testenv.Process], dice *rand.Rand) testenv.Client {
	return d.APIs[dice.IntN(len(d.APIs))].Client()
}
