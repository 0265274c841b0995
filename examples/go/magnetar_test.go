package shop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/sirupsen/logrus"
)

// Magnetar is a broker in a process of its own, which ends with this one: it reads its standard input until the end.
type Magnetar struct {
	Pulsar string `json:"pulsar"`
	Admin  string `json:"admin"`
	stdin  io.Closer
	ended  chan error
}

// StartMagnetar starts the command that the environment variable MAGNETAR names, by default `magnetar`, and returns when
// clients can connect.
func StartMagnetar() (*Magnetar, error) {
	folder, err := os.MkdirTemp("", "magnetar")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	ready := filepath.Join(folder, "ready.json")
	command := exec.Command(or(os.Getenv("MAGNETAR"), "magnetar"), "standalone", "--memory", "--test-faults",
		"--until-eof", "--set", "brokerServicePort=0", "--set", "webServicePort=0", "--ready-file", ready)
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	stdin, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	broker := &Magnetar{stdin: stdin, ended: make(chan error, 1)}
	go func() { broker.ended <- command.Wait() }()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		select {
		case err := <-broker.ended:
			return nil, fmt.Errorf("the broker ended: %v\n%s", err, output.String())
		default:
		}
		if text, err := os.ReadFile(ready); err == nil {
			return broker, json.Unmarshal(text, broker)
		}
	}
	stdin.Close()
	return nil, fmt.Errorf("the broker was not ready within a minute")
}

// Stop ends the broker and waits for its end.
func (m *Magnetar) Stop() {
	m.stdin.Close()
	<-m.ended
}

// Ask sends a request to the admin port, and reads the answer into `into` unless that is nil.
func (m *Magnetar) Ask(t *testing.T, method, path string, body, into any) {
	t.Helper()
	text, err := json.Marshal(body)
	must(t, err)
	request, err := http.NewRequest(method, m.Admin+path, bytes.NewReader(text))
	must(t, err)
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	must(t, err)
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	must(t, err)
	if answer.StatusCode >= 300 {
		t.Fatalf("%s %s: %s %s", method, path, answer.Status, got)
	}
	if into != nil {
		must(t, json.Unmarshal(got, into))
	}
}

// Advance moves the broker's clock ahead, and returns when everything has happened that fell due.
func (m *Magnetar) Advance(t *testing.T, length time.Duration) {
	t.Helper()
	m.Ask(t, "POST", "/magnetar/test/clock", map[string]any{"advance_ms": length.Milliseconds()}, nil)
}

// Fault sets a fault, such as {"on": "ACK", "do": "drop"}, and returns a function that tells how often it has happened.
func (m *Magnetar) Fault(t *testing.T, fault map[string]any) (fired func() int) {
	t.Helper()
	var set struct {
		ID int `json:"id"`
	}
	m.Ask(t, "POST", "/magnetar/test/faults", fault, &set)
	return func() int {
		var removed struct {
			Fired int `json:"fired"`
		}
		m.Ask(t, "DELETE", fmt.Sprintf("/magnetar/test/faults/%d", set.ID), nil, &removed)
		return removed.Fired
	}
}

// Shop is a client with a namespace for one test.
type Shop struct {
	pulsar.Client
	Namespace string
	t         *testing.T
}

// NewShop connects, and makes a namespace that no other test uses.
func NewShop(t *testing.T) *Shop {
	t.Helper()
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: broker.Pulsar, Logger: log.NewLoggerWithLogrus(quiet)})
	must(t, err)
	t.Cleanup(client.Close)
	namespace := fmt.Sprintf("public/%s-%d", strings.ToLower(t.Name()), time.Now().UnixNano())
	broker.Ask(t, "PUT", "/admin/v2/namespaces/"+namespace, map[string]any{}, nil)
	return &Shop{client, namespace, t}
}

// Topic returns a full name in the test's namespace.
func (s *Shop) Topic(name string) string { return "persistent://" + s.Namespace + "/" + name }

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
