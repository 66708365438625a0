// Command service answers requests with a SavedModel, and goes over to a newer
// version when there is one, without losing a request:
//
//	service -models exported -addr localhost:8080
//	curl localhost:8080/predict -d '{"rows": [[1, 2], [3, 4]]}'
//
// The models are in folders with a number, exported/1, exported/2 …, as TensorFlow
// Serving has them. SIGTERM ends it when the requests in progress are answered.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/savedmodels"
)

func main() {
	models := flag.String("models", "exported", "folder of the model's versions")
	addr := flag.String("addr", "localhost:8080", "where to listen")
	limit := flag.Duration("limit", 2*time.Second, "time for a request")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	if err := serve(ctx, listener, *models, *limit, time.Second); err != nil {
		log.Fatal(err)
	}
}

// service is the model that answers, and where its versions come from.
type service struct {
	models  string
	limit   time.Duration
	holder  savedmodels.Holder
	version int
}

// serve answers until the context is done, and then what has come in.
func serve(ctx context.Context, listener net.Listener, models string, limit, every time.Duration) error {
	s := &service{models: models, limit: limit}
	defer s.holder.Close()
	if err := s.update(ctx); err != nil {
		listener.Close()
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /predict", s.predict)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: limit}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	for {
		select {
		case err := <-failed:
			return err
		case <-time.After(every):
			if err := s.update(ctx); err != nil && ctx.Err() == nil {
				log.Printf("goes on with version %d: %v", s.version, err)
			}
		case <-ctx.Done():
			drain, cancel := context.WithTimeout(context.Background(), 2*limit)
			defer cancel()
			return server.Shutdown(drain)
		}
	}
}

// update goes over to the newest version, warmed up before its first request.
func (s *service) update(ctx context.Context) error {
	newest := 0
	folders, err := filepath.Glob(filepath.Join(s.models, "*", "saved_model.pb"))
	if err != nil {
		return err
	}
	for _, path := range folders {
		if n, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			newest = max(newest, n)
		}
	}
	if newest == 0 {
		return fmt.Errorf("there is no model in %s: wanted %s", s.models, filepath.Join(s.models, "1", "saved_model.pb"))
	}
	if newest == s.version {
		return nil
	}
	m, err := savedmodels.LoadContext(ctx, filepath.Join(s.models, strconv.Itoa(newest)), savedmodels.Options{})
	if err != nil {
		return err
	}
	if err := m.Warmup(ctx); err != nil && !errors.Is(err, savedmodels.ErrWarmup) {
		m.Close()
		return err
	}
	s.version = newest
	log.Printf("version %d answers", newest)
	return s.holder.Swap(m) // waits for the requests that the old one has
}

// predict answers {"rows": [[…], …]} with {"rows": [[…], …]}.
func (s *service) predict(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), s.limit)
	defer cancel()
	var request struct{ Rows [][]float32 }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 16<<20)).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	rows, err := s.scores(ctx, request.Rows)
	switch {
	case errors.Is(err, bridge.ErrInvalidArgument):
		http.Error(w, err.Error(), http.StatusBadRequest)
	case errors.Is(err, context.DeadlineExceeded):
		http.Error(w, err.Error(), http.StatusGatewayTimeout)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		json.NewEncoder(w).Encode(map[string]any{"rows": rows})
	}
}

// scores runs the model's one input and one output.
func (s *service) scores(ctx context.Context, rows [][]float32) ([][]float32, error) {
	var flat []float32
	for i, row := range rows {
		if len(row) != len(rows[0]) {
			return nil, bridge.Errorf(bridge.InvalidArgument, "predict", "row %d has %d numbers, row 0 has %d", i, len(row), len(rows[0]))
		}
		flat = append(flat, row...)
	}
	if len(flat) == 0 {
		return nil, bridge.Errorf(bridge.InvalidArgument, "predict", "there are no rows")
	}
	x, err := bridge.FromFlat(bridge.Shape{int64(len(rows)), int64(len(rows[0]))}, flat)
	if err != nil {
		return nil, err
	}
	defer x.Close()
	out, err := s.holder.Run(ctx, "serving_default", savedmodels.Tensors{"x": x})
	if err != nil {
		return nil, err
	}
	defer out.Close()
	y, err := bridge.Values[float32](out["y"])
	if err != nil {
		return nil, err
	}
	answer := make([][]float32, len(rows))
	for i := range answer {
		width := len(y) / len(rows)
		answer[i] = y[i*width : (i+1)*width]
	}
	return answer, nil
}
