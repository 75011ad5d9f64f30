#include "agent/tools/bench_node.h"
#include "base/clock.h"
#include "base/meminfo.h"
#include "base/numbers.h"
#include "kernels/ops.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Windows of each measurement. The best one counts, because a disturbance rarely lasts through all
 * of them. A window is longer than the periods in which the kernel gives a limited process its
 * share (100 ms), so that a node that is always slow is slow in each. */
enum { WINDOWS = 3, PATTERN = 4096, QUEUED = 8 };
#define BUFFER_MOST  ((size_t)1 << 30)
#define BUFFER_LEAST ((size_t)64 << 20)

struct device_test {
	const char *backend;
	int device, threads;
	double seconds;
	double flops, bytes_s; /* results */
	struct err trouble;
	pthread_t thread;
	bool started;
};

static int usable_cores(void)
{
	cpu_set_t set;
	return sched_getaffinity(0, sizeof set, &set) ? 1 : max_int(CPU_COUNT(&set), 1);
}

/* --- Buffers ------------------------------------------------------------------------------ */

/* Fills a buffer with numbers in (-0.5, 0.5). */
static void fill_buffer(struct backend *k, void *p, int64_t count, float *numbers)
{
	const struct ops *ops = backend_ops(k);
	size_t width = backend_width(k);
	int64_t done = min_int64(count, PATTERN);
	ops->fp32_to_storage(k, p, numbers, done, NULL, 0);
	for (int64_t n; done < count; done += n) {
		n = min_int64(count - done, done);
		backend_copy(k, (char *)p + (size_t)done * width, p, (size_t)n * width);
	}
}

static float *new_numbers(struct backend *k)
{
	float x[PATTERN];
	for (int i = 0; i < PATTERN; i++)
		x[i] = (float)((uint32_t)i * 2654435761u >> 8) / (float)(1 << 24) - 0.5F;
	float *p = backend_alloc(k, sizeof x);
	if (p)
		backend_put(k, p, x, sizeof x);
	return p;
}

struct buffers {
	void *of[3];
	int n;
};

static int open_buffers(struct backend *k, int n, int64_t count, struct buffers *b, struct err *e)
{
	float *numbers = new_numbers(k);
	*b = (struct buffers){ .n = 0 };
	while (numbers && b->n < n &&
	       (b->of[b->n] = backend_alloc(k, (size_t)count * backend_width(k))))
		fill_buffer(k, b->of[b->n++], count, numbers);
	backend_free(k, numbers);
	return b->n == n ? 0
			 : err_set(e, ERR_NOMEM,
				   "no memory for %d buffers of %lld MiB; end other programs on "
				   "the node",
				   n, (long long)((size_t)count * backend_width(k) >> 20));
}

static void close_buffers(struct backend *k, struct buffers *b)
{
	while (b->n)
		backend_free(k, b->of[--b->n]);
}

/* --- Windows ------------------------------------------------------------------------------ */

struct work {
	struct backend *k;
	const struct buffers *b;
	int64_t n; /* rows of the matrices, or elements of the buffers */
	void (*once)(const struct work *w);
	double amount; /* FLOPs or bytes of one call */
	int queued;    /* calls between two waits */
};

static void multiply(const struct work *w)
{
	backend_ops(w->k)->linear_fwd(w->k, w->b->of[0], w->b->of[1], w->b->of[2], NULL, w->n, w->n,
				      w->n);
}

static void add(const struct work *w)
{
	backend_ops(w->k)->add(w->k, w->b->of[0], w->b->of[1], w->n);
}

/* Sets *rate to the mean rate of a window, if that is better. */
static int run_window(const struct work *w, double seconds, double *rate, struct err *e)
{
	double begin = clock_s(), now = begin, done = 0;
	while (now - begin < seconds) {
		for (int i = 0; i < w->queued; i++)
			w->once(w);
		if (backend_sync(w->k, e))
			return -1;
		done += w->queued;
		now = clock_s();
	}
	*rate = fmax(*rate, done * w->amount / (now - begin));
	return 0;
}

/* Whether another product of the same matrices has the bits of the first one. */
static int compare_products(const struct work *w, const void *first, void *again, struct err *e)
{
	size_t bytes = (size_t)(w->n * w->n) * backend_width(w->k);
	if (backend_get(w->k, again, w->b->of[0], bytes, e))
		return -1;
	return memcmp(first, again, bytes) ? err_set(e, ERR_NUMERIC,
						     "two products of the same matrices differ; "
						     "drain the node and test "
						     "its processor and memory")
					   : 0;
}

static int run_windows(struct device_test *t, const struct work *product, const struct work *memory,
		       struct err *e)
{
	size_t bytes = (size_t)(product->n * product->n) * backend_width(product->k);
	char *first = malloc(bytes), *again = malloc(bytes);
	int rc = first && again ? 0 : err_set(e, ERR_NOMEM, "no memory to compare products");
	double window = t->seconds / (2 * WINDOWS);
	if (!rc)
		product->once(product); /* it is not timed: first uses take longer */
	if (!rc)
		rc = backend_get(product->k, first, product->b->of[0], bytes, e);
	for (int i = 0; i < WINDOWS && !rc; i++)
		rc = run_window(product, window, &t->flops, e) ||
				     run_window(memory, window, &t->bytes_s, e) ||
				     compare_products(product, first, again, e)
			     ? -1
			     : 0;
	free(first);
	free(again);
	return rc;
}

/* --- A device ----------------------------------------------------------------------------- */

/* Rows of a matrix: enough work for all threads in each product, and many products in a window. */
static int64_t matrix_rows(const struct backend *k, int threads)
{
	if (!backend_on_host(k))
		return 4096;
	return threads <= 8 ? 512 : threads <= 32 ? 1024 : 2048;
}

/* Larger than the caches, and a small part of the memory. */
static size_t buffer_bytes(const struct backend *k, int threads)
{
	size_t most = BUFFER_MOST;
	double there = meminfo_read("MemAvailable");
	if (!backend_on_host(k))
		return BUFFER_MOST;
	if (there > 0)
		most = min_size(most, max_size((size_t)(there / 16), (size_t)1 << 20));
	return min_size(most, max_size(BUFFER_LEAST, (size_t)threads << 24));
}

static int test_backend(struct device_test *t, struct backend *k, struct err *e)
{
	struct buffers matrices = { .n = 0 }, rows = { .n = 0 };
	int64_t n = matrix_rows(k, t->threads),
		count = (int64_t)(buffer_bytes(k, t->threads) / backend_width(k));
	int rc = open_buffers(k, 3, n * n, &matrices, e) || open_buffers(k, 2, count, &rows, e);
	const struct work product = { .k = k,
				      .b = &matrices,
				      .n = n,
				      .once = multiply,
				      .amount = 2.0 * (double)n * (double)n * (double)n,
				      .queued = backend_on_host(k) ? 1 : QUEUED };
	/* Two reads and a write of each element. */
	const struct work memory = { .k = k,
				     .b = &rows,
				     .n = count,
				     .once = add,
				     .amount = 3.0 * (double)count * (double)backend_width(k),
				     .queued = 1 };
	if (!rc)
		rc = run_windows(t, &product, &memory, e);
	close_buffers(k, &rows);
	close_buffers(k, &matrices);
	return rc;
}

static void *test_device(void *arg)
{
	struct device_test *t = arg;
	struct backend *k;
	if (backend_open_device(t->backend, t->threads, t->device, &k, &t->trouble))
		return NULL;
	test_backend(t, k, &t->trouble);
	backend_close(k);
	return NULL;
}

/* The devices to measure; at least 1. */
static int count_devices(const struct bench_node *b)
{
	int n = 0;
	struct backend *k;
	if (strncmp(b->backend, "cuda", 4) != 0)
		return 1;
	while (!b->devices && n < NODE_DEVICES &&
	       !backend_open_device(b->backend, 1, n, &k, NULL)) {
		backend_close(k);
		n++;
	}
	return min_int(max_int(b->devices + n, 1), NODE_DEVICES);
}

void bench_node_devices(const struct bench_node *b, double seconds, struct node_figures *out)
{
	static struct device_test tests[NODE_DEVICES];
	int n = count_devices(b), cores = usable_cores();
	for (int i = 0; i < n; i++) {
		tests[i] = (struct device_test){ .backend = b->backend,
						 .device = i,
						 .threads = cores,
						 .seconds = seconds,
						 .trouble = ERR_INIT };
		tests[i].started = n > 1 &&
				   !pthread_create(&tests[i].thread, NULL, test_device, &tests[i]);
	}
	for (int i = 0; i < n; i++) {
		if (tests[i].started)
			pthread_join(tests[i].thread, NULL);
		else
			test_device(&tests[i]);
		if (tests[i].trouble.code && !out->trouble.code)
			err_set(&out->trouble, tests[i].trouble.code, "device %d: %s", i,
				tests[i].trouble.text);
		if (tests[i].flops > 0)
			bench_node_add(out, BURN_IN_PRODUCT, i, tests[i].flops);
		if (tests[i].bytes_s > 0)
			bench_node_add(out, BURN_IN_MEMORY, i, tests[i].bytes_s);
	}
}
