package kubeapi

import (
	"io"
	"maps"
	"net/http"
)

// Handler serves the API over HTTP, for other processes. Requests and answers are JSON, whatever the client prefers: it has to be told to
// write application/json. Nobody is asked who they are.
func (s *Server) Handler() http.Handler {
	client := s.Client()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, err := client.RoundTrip(r)
		if err != nil {
			panic(http.ErrAbortHandler) // the connection is cut, as RoundTrip says
		}
		defer got.Body.Close()
		maps.Copy(w.Header(), got.Header)
		w.WriteHeader(got.StatusCode)
		if _, watch := got.Body.(*watchBody); !watch {
			_, _ = io.Copy(w, got.Body) // fails only if the client has disconnected
			return
		}
		flushed(w, got.Body)
	})
}

// flushed copies a watch: each of its frames is sent at once.
func flushed(w http.ResponseWriter, body io.Reader) {
	flush := http.NewResponseController(w).Flush
	if flush() != nil { // clients wait for the header
		return
	}
	buffer := make([]byte, 64<<10)
	for {
		n, err := body.Read(buffer)
		if n > 0 {
			if _, err := w.Write(buffer[:n]); err != nil || flush() != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
