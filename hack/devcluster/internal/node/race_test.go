//go:build race

package node_test

// slowdown is what the race detector costs the simulated node.
const slowdown = 3
