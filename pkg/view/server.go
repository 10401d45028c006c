package view

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"net"
	"net/http"
	"strings"

	"github.com/dovetail-scheduler/dovetail/pkg/explain"
)

//go:embed assets
var assets embed.FS

var page = template.Must(template.ParseFS(assets, "assets/page.html"))

// policy lets the page load its own script and style and ask this server, and nothing else: there is no inline script, so that no name or
// message in the cluster can become one.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Server serves the page, its updates, and answers about a pod or a node. It only answers to GET, and only under the names of Hosts.
type Server struct {
	feed  *Feed
	title string
	// hosts are the values of the header Host that are answered to, without ports.
	hosts map[string]bool
	mux   *http.ServeMux
}

// NewServer returns the handler. title is the cluster's name, address the one that is listened on. Requests are answered only if their Host is that
// address's host or localhost: another site could let its own domain resolve to this computer (DNS rebinding).
func NewServer(feed *Feed, title, address string) (*Server, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("address %s: %w", address, err)
	}
	s := &Server{feed: feed, title: title, hosts: map[string]bool{"localhost": true, "127.0.0.1": true, "::1": true}, mux: http.NewServeMux()}
	if host != "" {
		s.hosts[host] = true
	}
	files, err := fs.Sub(assets, "assets")
	if err != nil {
		return nil, fmt.Errorf("assets: %w", err)
	}
	s.mux.HandleFunc("GET /{$}", s.page)
	s.mux.Handle("GET /view.js", http.FileServerFS(files))
	s.mux.Handle("GET /view.css", http.FileServerFS(files))
	s.mux.HandleFunc("GET /updates", s.updates)
	s.mux.HandleFunc("GET /why", s.why)
	s.mux.HandleFunc("GET /ending", s.ending)
	return s, nil
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if !s.hosts[hostOf(r.Host)] {
		http.Error(w, "the page isn't served under this name; use the address that 'dovetail view' printed", http.StatusForbidden)
		return
	}
	// Browsers tell whether the request comes from another site. Plans cost CPU, and a link on another site must not cause them.
	if site := r.Header.Get("Sec-Fetch-Site"); r.URL.Path != "/" && site != "" && site != "same-origin" && site != "none" {
		http.Error(w, "another site asks", http.StatusForbidden)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// hostOf returns a Host header without its port.
func hostOf(header string) string {
	if host, _, err := net.SplitHostPort(header); err == nil {
		return strings.ToLower(host)
	}
	return strings.ToLower(strings.Trim(header, "[]"))
}

func (s *Server) page(w http.ResponseWriter, _ *http.Request) {
	var b bytes.Buffer
	if err := page.ExecuteTemplate(&b, "page.html", map[string]string{"Title": s.title, "Process": s.feed.process}); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(b.Bytes()) // the browser is gone: it asks again
}

// updates sends server-sent events: everything first, and then what has changed since what was sent last. A browser that is slow misses models
// in between, not changes.
func (s *Server) updates(w http.ResponseWriter, r *http.Request) {
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	s.feed.Want()
	var sent *Model
	for {
		model, changed := s.feed.Latest()
		if model != nil && model != sent {
			u := Diff(sent, model)
			u.Now = millis(s.feed.clock.Now())
			text, err := json.Marshal(u)
			if err != nil {
				return
			}
			if _, err := fmt.Fprintf(w, "data: %s\n\n", text); err != nil {
				return
			}
			sent = model
		}
		if err := out.Flush(); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
	}
}

// why answers /why?node=NAME and /why?pod=NAMESPACE/NAME with an explain.Answer.
func (s *Server) why(w http.ResponseWriter, r *http.Request) {
	node, pod := r.FormValue("node"), r.FormValue("pod")
	s.answer(w, r, func(c *explain.Cluster) (any, error) {
		if node != "" {
			return c.Node(node)
		}
		namespace, name, _ := strings.Cut(pod, "/")
		return c.Pod(r.Context(), namespace, name)
	})
}

// ending answers /ending?node=NAME with an Ending.
func (s *Server) ending(w http.ResponseWriter, r *http.Request) {
	s.answer(w, r, func(c *explain.Cluster) (any, error) { return EndingOf(r.Context(), c, r.FormValue("node")) })
}

// answer writes what of returns as JSON; an error, which is about what was asked, as {"error": "..."} with status 422.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, of func(*explain.Cluster) (any, error)) {
	var value any
	s.feed.Want()
	err := s.feed.ask(r.Context(), func(c *explain.Cluster) (err error) {
		value, err = of(c)
		return err
	})
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		w.WriteHeader(http.StatusUnprocessableEntity)
		value = map[string]string{"error": err.Error()}
	}
	_ = json.NewEncoder(w).Encode(value) // the browser is gone: nobody reads it
}
