package cluster

import (
	"embed"
	"io/fs"
	"os"
	"path/filepath"
	"text/template"
)

// conf are the programs' configuration files. Every Pod has a cable of its own to the node (the plugin ptp), so that all
// traffic between Pods is routed, and kube-proxy's rules see it; on a bridge that would need a kernel module.
//
//go:embed conf
var conf embed.FS

// configure writes the files with this node's places in them.
func (n *node) configure() error {
	values := struct {
		Order
		DNSAddress, Domain, PodCIDR, ContainerdSocket, PauseImage string
	}{n.Order, dnsAddress, domain, podCIDR, ContainerdSocket, PauseImage}
	templates, err := template.ParseFS(conf, "conf/*.*", "conf/cni/*")
	if err != nil {
		return err
	}
	return fs.WalkDir(conf, "conf", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(n.path(path)), 0o700); err != nil {
			return err
		}
		file, err := os.Create(n.path(path))
		if err != nil {
			return err
		}
		defer file.Close()
		return templates.ExecuteTemplate(file, filepath.Base(path), values)
	})
}
