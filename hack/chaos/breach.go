package main

// A breach is a kind of broken promise.
type breach int

const (
	none           breach = iota
	lost                  // an answered request was neither carried out nor reported
	resurrected           // what an answered delete was to end is there again
	killedByFriend        // what a 200 was answered for is gone without a delete
	duplicated            // there is more than one of something
	orphaned              // one half is there without the other
	untrue                // a read says that something is not there that is
	breaches              // how many there are
)

func (b breach) String() string {
	return [breaches]string{"none", "lost", "resurrected", "killed_by_friend", "duplicated", "orphaned", "untrue"}[b]
}
