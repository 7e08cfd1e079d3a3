// The OpenID Connect provider of the hub's tests: dex's own server over a list of people with groups.
//
// dex's program has no groups for the people in its file, so its server is given them here by a
// connector, its own way of asking somebody else who a person is. All else is dex: login page,
// codes, tokens, keys. It keeps everything in memory and ends with its standard input.
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

// What the file named by the first argument says, as JSON.
type settings struct {
	Issuer  string           // the address of the provider, http://127.0.0.1:<port>/<path>
	Clients []storage.Client // who may ask for sign-ins, and where people are sent back to
	People  people
	Clock   string // a file with how far the provider's clock is ahead, as 40m; may be missing
}

type person struct {
	Password, Email string
	Groups          []string
}

type people map[string]person

// Open makes the list a connector of dex.
func (p people) Open(string, *slog.Logger) (connector.Connector, error) { return p, nil }

// Prompt is what the login page calls the name.
func (p people) Prompt() string { return "Name" }

// Login says who a person is; groups only when the client asked for them.
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
	_, _ = io.Copy(io.Discard, os.Stdin) // whoever started it holds the other end
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
