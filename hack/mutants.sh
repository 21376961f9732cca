#!/usr/bin/env bash
# Takes one rule of the protocol away at a time, in a copy of the tree, and expects the tests to notice. A mutant that survives
# is a rule that no test guards. One that does not compile, a test that fails without any, and one that fails without a word of what was
# broken prove nothing, and end it. Usage: hack/mutants.sh [NAME...]
set -euo pipefail
cd "$(dirname "$0")/.."
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -z --cached --others --exclude-standard | tar --null -T - -c 2>/dev/null | tar -x -C "$copy"
cd "$copy"
killed=0 survived=0

# mutant NAME FILE PERL-SUBSTITUTION TEST-COMMAND...
mutant() {
  local name=$1 file=$2 change=$3
  shift 3
  [ ${#wanted[@]} -eq 0 ] || [[ " ${wanted[*]} " == *" $name "* ]] || return 0
  cp "$file" "$copy/.original"
  perl -0pi -e "$change" "$file"
  if cmp -s "$file" "$copy/.original"; then
    echo "mutants: $name changes nothing; its pattern is out of date" >&2
    exit 1
  fi
  go vet ./... 2>"$copy/.log" || broken "$name does not compile"
  cp "$file" "$copy/.mutated"
  cp "$copy/.original" "$file"
  passes_without "$@" || broken "without $name, too, this fails: $*"
  cp "$copy/.mutated" "$file"
  if "$@" >"$copy/.log" 2>&1; then
    survived=$((survived + 1))
    echo "SURVIVED $name"
  else
    reason=$(grep -m1 -E 'friendly|diverg|resurrect|loss:|orphan|not quiet|Error:|truth' "$copy/.log") || broken "$name fails for another reason"
    killed=$((killed + 1))
    echo "killed   $name: $(sed 's/^ *//' <<<"$reason" | cut -c1-120)"
  fi
  cp "$copy/.original" "$file"
}

broken() {
  echo "mutants: $1" >&2
  cat "$copy/.log" >&2
  exit 1
}

# passes_without TEST-COMMAND... tells whether the tests pass that a mutant is to fail. Each command is asked once.
declare -A passed
passes_without() {
  [ -z "${passed[$*]:-}" ] || return 0
  "$@" >"$copy/.log" 2>&1 && passed[$*]=1
}

wanted=("$@")
model=(go test ./test/model -runs 10000)

mutant fence-ignored internal/sandbox/generation.go 's/l\.Fence > 0 && at <= l\.Fence/at <= l.Fence && l.Fence > 1<<60/' "${model[@]}"
mutant no-second-look internal/worker/reconcile.go 's/newest != v\.Generation\(\)/newest.Seq > 1<<60/' "${model[@]}"
mutant no-uid-precondition internal/k8s/cluster.go 's/metav1\.DeleteOptions\{Preconditions: [^)]*\}\)/metav1.DeleteOptions{})/; s/\n\tuid := obj.GetUID\(\)//' "${model[@]}"
mutant acknowledged-before-the-outcome internal/worker/reconcile.go 's/(errors\.Is\(err, jobs\.ErrConflict\):\n\t\treturn true, nil[^\n]*\n\tcase err != nil:\n\t\treturn false,) err/$1 nil/' "${model[@]}"
mutant terminating-is-success internal/k8s/reconcile.go 's/(case terminating\(pod\):\n\t\treturn) wait, nil/$1 keep, nil/' "${model[@]}"
mutant no-second-look-of-the-api internal/api/provisioner.go 's/newest != v\.Generation\(\)/newest.Seq > 1<<60/' "${model[@]}"
mutant condemned-objects-adopted internal/sandbox/generation.go 's/return !l\.Condemns\(g\)/return true/' "${model[@]}"
mutant undo-spares-ended-lives internal/k8s/reconcile.go 's/c\.removeIf\(ctx, id, l\.Rejects\)/c.removeIf(ctx, id, l.Condemns)/' "${model[@]}"
mutant no-undo internal/worker/reconcile.go 's/case v\.Outcome\.State == jobs\.Failed:\n\t\tif err := r\.cluster\.Undo\(ctx, v\.ID, v\.Lineage\(\)\); err != nil/case v.Outcome.State == jobs.Failed:\n\t\tif err := error(nil); err != nil/' "${model[@]}"
mutant old-objects-condemned internal/jobs/view.go 's/case v\.Intent == nil, v\.Intent\.First, v\.outcomesLost\(\):/case v.Intent == nil:/' "${model[@]}"
mutant fence-not-carried internal/jobs/view.go 's/return v\.Intent\.Fence/return 0/' "${model[@]}"
mutant finished-delete-not-repeated internal/worker/reconcile.go 's/(case v\.Intent != nil && v\.Intent\.Op == jobs\.Absent:\n\t\treturn) r\.cluster\.Remove\(ctx, v\.ID, v\.Lineage\(\)\)/$1 nil/' "${model[@]}"
mutant delete-hits-successors internal/sandbox/generation.go 's/return g\.In\(l\.Generation\.Stream\) < l\.Generation\.Seq/return true/' "${model[@]}"
mutant lost-request-forgotten internal/jobs/view.go 's/last\.RequestID == in\.RequestID/false/' go test ./internal/api ./internal/jobs
mutant old-stream-counts internal/sandbox/generation.go 's/if g\.Stream != stream \{\n\t\treturn 0\n\t\}\n//' "${model[@]}"

# A worker believes the first word about an id, and an api guesses that an id is new.
unit=(go test ./internal/jobs)
mutant old-words-believed internal/jobs/consume.go 's/ && now\.Sub\(meta\.Timestamp\)\.Abs\(\) < freshness//' "${unit[@]}" -run TestAMessageThatIsOld
mutant words-believed-twice internal/jobs/consume.go 's/meta\.NumDelivered == 1 && //' "${unit[@]}" -run 'TestAMessageThatIsOld'
mutant words-before-others-believed internal/jobs/consume.go 's/ && meta\.NumPending == 0//' "${unit[@]}" -run 'TestAMessageThatIsOld'
mutant other-connections-believed internal/jobs/consume.go 's/ && c\.q\.nc\.Stats\(\)\.Reconnects == s\.reconnects//' "${unit[@]}" -run TestAWordOfAnotherConnection
mutant other-outcomes-believed internal/jobs/view.go 's/ \|\| in\.Outcomes != unseen\.OutcomeStream//' "${unit[@]}" -run TestAWordAfterWhich
mutant guess-into-silence internal/jobs/queue.go 's/ \|\| time\.Since\(\*heard\) > heardAge//' "${unit[@]}" -run TestNothingIsGuessed
mutant outcomes-forgotten-first internal/jobs/config.go 's/\(c\.Retention, intentAge\) \+ outlives/(c.Retention, intentAge)/' "${unit[@]}" -run TestOutcomesOutlive

echo "mutants: $killed killed, $survived survived"
[ $survived -eq 0 ]
