// The OpenID Connect provider of the hub's tests: dex's own server with a list of users and groups.
//
// dex itself has no groups for the users in its configuration file. This program adds the list as a
// connector, which is dex's interface for other sources of users. The login page, codes, tokens and
// keys are dex's. All data are in memory, and the program ends when its standard input is closed.
package main

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/dexidp/dex/connector"
	"github.com/dexidp/dex/server"
	"github.com/dexidp/dex/storage"
	"github.com/dexidp/dex/storage/memory"
	"github.com/dexidp/dex/web"
)

// The settings, read as JSON from the file that the first argument names.
type settings struct {
	Issuer  string           // the address of the provider, http://127.0.0.1:<port>/<path>
	Clients []storage.Client // the allowed clients, with their redirect URLs
	People  people
	Clock   string // a file with the lead of the provider's clock, such as 40m; may be missing
}

type person struct {
	Password, Email string
	Groups          []string
}

type people map[string]person

// Open returns the list as a connector of dex.
func (p people) Open(string, *slog.Logger) (connector.Connector, error) { return p, nil }

// Prompt returns the label of the name on the login page.
func (p people) Prompt() string { return "Name" }

// Login returns the identity of a user, with groups only if the client requested them.
func (p people) Login(_ context.Context, asked connector.Scopes, name, password string) (connector.Identity, bool, error) {
	one, known := p[name]
	if !known || one.Password != password {
		return connector.Identity{}, false, nil
	}
	who := connector.Identity{
		UserID: name, Username: name, PreferredUsername: name, Email: one.Email, EmailVerified: true,
	}
	if asked.Groups {
		who.Groups = one.Groups
	}
	return who, true, nil
}

func main() {
	text, err := os.ReadFile(os.Args[1])
	must(err)
	var wanted settings
	must(json.Unmarshal(text, &wanted))
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	server.ConnectorsConfig["people"] = func() server.ConnectorConfig { return wanted.People }
	kept := storage.WithStaticConnectors(
		storage.WithStaticClients(memory.New(logger), wanted.Clients),
		[]storage.Connector{{ID: "people", Type: "people", Name: "People"}},
	)
	provider, err := server.NewServer(context.Background(), server.Config{
		Issuer:             wanted.Issuer,
		Storage:            kept,
		SkipApprovalScreen: true,
		Web:                server.WebConfig{WebFS: web.FS()},
		Logger:             logger,
		Now:                func() time.Time { return time.Now().Add(ahead(wanted.Clock)) },
	})
	must(err)
	listener, err := net.Listen("tcp", os.Args[2])
	must(err)
	go func() { must(http.Serve(listener, provider)) }()
	_, _ = io.Copy(io.Discard, os.Stdin) // the parent process holds the other end
}

func ahead(file string) time.Duration {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	duration, err := time.ParseDuration(string(text))
	must(err)
	return duration
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
