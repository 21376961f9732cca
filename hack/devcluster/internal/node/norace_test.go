//go:build !race

package node_test

const slowdown = 1
