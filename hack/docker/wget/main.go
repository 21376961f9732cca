// Command wget fetches its last argument, and fails unless the answer is 200. In the NATS image that is built here it stands in for
// the wget of the image that would be pulled, which docker-compose.yaml asks whether NATS is well.
package main

import (
	"fmt"
	"net/http"
	"os"
	"time"
)

func main() {
	if err := fetch(os.Args[len(os.Args)-1]); err != nil {
		fmt.Fprintln(os.Stderr, "wget:", err)
		os.Exit(1)
	}
}

func fetch(url string) error {
	client := &http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, resp.Status)
	}
	return nil
}
