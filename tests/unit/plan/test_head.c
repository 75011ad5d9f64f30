/*
 * The head's chunks of logits: how many rows they have, what they take and move, and that a plan
 * makes them smaller where memory is short.
 */
#include "plan/memory.h"
#include "plan/plan.h"
#include "plan/show/plan.h"
#include "topo/cluster.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define GPT2 \
	"model.family=gpt2", "model.layers=12", "model.hidden=768", "model.heads=12", \
		"model.seq=1024", "model.vocab=50257", "batch.micro=32", "batch.global=32", \
		"precision.dtype=bf16"
#define LLAMA_1B \
	"model.family=llama", "model.layers=16", "model.hidden=2048", "model.heads=32", \
		"model.kv_heads=8", "model.ffn=8192", "model.seq=2048", "model.vocab=128256", \
		"batch.micro=8", "batch.global=8", "precision.dtype=bf16"

enum { WORDS = 24 };

static struct job job_of(const char *const *words)
{
	struct job job;
	struct err e = ERR_INIT;
	int n = 0;
	while (words[n])
		n++;
	if (job_load(NULL, words, n, &job, &e))
		fail_msg("%s", e.text);
	return job;
}

/* The rows of a chunk that holds 256 MiB of fp32 logits. */
static int64_t rows_of_256_mib(int64_t n, int64_t vocab)
{
	int64_t most = (256 << 20) / (4 * vocab), chunks;
	most = most < 1 ? 1 : most;
	chunks = (n + most - 1) / most;
	return (n + chunks - 1) / chunks;
}

static void a_processor_s_chunks_are_256_mib_of_fp32(void **state)
{
	static const char *const types[] = { "precision.dtype=fp32", "precision.dtype=bf16" };
	(void)state;
	for (int t = 0; t < 2; t++) {
		struct job job = job_of((const char *const[]){ types[t], "batch.logits=1", NULL });
		for (int64_t n = 1; n < 40000; n += n / 3 + 1)
			for (int64_t vocab = 2; vocab < 1 << 27; vocab += vocab / 3 + 1) {
				assert_int_equal(activations_logits_row(&job, vocab), vocab);
				assert_int_equal(activations_logits_rows(&job, n, vocab),
						 rows_of_256_mib(n, vocab));
			}
	}
}

static void a_device_s_chunks_are_whole_tiles_within_the_limit(void **state)
{
	static const char *const types[] = { "precision.dtype=fp32", "precision.dtype=bf16",
					     "precision.dtype=fp16" };
	int whole = 0, several = 0;
	(void)state;
	for (int t = 0; t < 3; t++) {
		struct job job = job_of((const char *const[]){ types[t], "job.device=cuda", NULL });
		assert_int_equal(job.batch.logits, 4096);
		for (job.batch.logits = 1; job.batch.logits <= 4096; job.batch.logits *= 4)
			for (int64_t n = 1; n < 200000; n += n / 3 + 1)
				for (int64_t v = 2; v < 300000; v += v / 3 + 1) {
					int64_t row = activations_logits_row(&job, v),
						rows = activations_logits_rows(&job, n, v),
						width = t ? 2 : 4, limit = job.batch.logits << 20;
					assert_true(row % 128 == 0 && row >= v && row < v + 128);
					assert_true(rows >= 1 && rows <= n);
					assert_true(rows == 1 || rows * row * width <= limit);
					/* fewer than 256 rows only where 256 do not fit */
					assert_true(rows == n || rows % 256 == 0 ||
						    256 * row * width > limit);
					whole += rows == n;
					several += rows < n && rows % 256 == 0;
					/* twice the limit never makes more chunks */
					job.batch.logits *= 2;
					int64_t more = activations_logits_rows(&job, n, v);
					assert_true((n + more - 1) / more <= (n + rows - 1) / rows);
					job.batch.logits /= 2;
				}
	}
	assert_true(whole > 1000 && several > 1000);
}

/* The bytes that the head's four operations move in a step of one micro-batch: products read their
 * operands once. tests/unit/agent/test_head_moves counts those of the engine. */
struct moved {
	double weights, gradient, logits, rows;
};

static struct moved moved_by(int64_t n, int64_t c, int64_t vocab, int64_t row, int64_t rows)
{
	double chunks = (double)((n + rows - 1) / rows), table = (double)(vocab * c);
	return (struct moved){
		.weights = chunks * 2 * 2 * table, /* read by two products */
		/* written by the third, and read but by a step's first chunk */
		.gradient = (2 * chunks - 1) * 4 * table,
		.logits = 5.0 * 2 * (double)(n * row), /* write; read, write; read; read */
		.rows = 3.0 * 2 * (double)(n * c),
	};
}

static double sum_of(const struct moved *m)
{
	return m->weights + m->gradient + m->logits + m->rows;
}

static void print_moved(const char *name, int64_t rows, const struct moved *m)
{
	print_message("%-36s %6lld rows: weights %5.1f GB, gradient %5.1f, logits %5.1f, inputs "
		      "%4.1f; %5.1f GB\n",
		      name, (long long)rows, m->weights / 1e9, m->gradient / 1e9, m->logits / 1e9,
		      m->rows / 1e9, sum_of(m) / 1e9);
}

/* Prints and returns what chunks of 256 MiB move, and what those of the job do. */
static void compare(const char *name, const char *const *words, struct moved out[2])
{
	struct job job = job_of(words);
	struct model_shape m;
	struct layout l = layout_of(&job, 1);
	struct act_dims d;
	char line[64];
	shape_of_job(&job, &m);
	activations_dims_of(&job, &m, &l, 0, false, &d);
	int64_t before = rows_of_256_mib(d.n, d.vocab);
	out[0] = moved_by(d.n, d.c, d.vocab, d.vocab, before);
	out[1] = moved_by(d.n, d.c, d.vocab, d.logits_row, d.rows);
	if (d.logits_row > d.vocab) /* the copy into whole rows */
		out[1].weights += 2 * 2 * (double)(d.vocab * d.c);
	print_moved(name, before, &out[0]);
	snprintf(line, sizeof line, "  rows of %lld, %.2f GiB", (long long)d.logits_row,
		 (double)activations_scratch_bytes(&d, true, SCRATCH_LOGITS) / (1 << 30));
	print_moved(line, d.rows, &out[1]);
}

static void a_step_moves_the_head_s_gradient_once(void **state)
{
	static const char *const llama[] = { LLAMA_1B, "job.device=cuda", NULL }, *const gpt2[] = {
		GPT2, "job.device=cuda", NULL
	};
	struct moved m[2];
	(void)state;
	compare("LLaMA-1B, 8 × 2048", llama, m);
	assert_true(m[0].gradient > 65e9 && m[1].gradient == 4.0 * 128256 * 2048);
	assert_true(sum_of(&m[0]) > 4.5 * sum_of(&m[1]));
	compare("GPT-2 124M, 32 × 1024", gpt2, m);
	assert_true(m[1].gradient == 4.0 * 50257 * 768);
	assert_true(sum_of(&m[0]) > 1.4 * sum_of(&m[1]));
}

/* The ranks of a tp group reduce their rows' maxima and sums, so their chunks must be the same. */
static void tp_ranks_compute_the_same_rows(void **state)
{
	static const char *const devices[] = { "job.device=cpu", "job.device=cuda" };
	int64_t limited = 0;
	(void)state;
	for (int on = 0; on < 2; on++) {
		struct job job = job_of((const char *const[]){ GPT2, devices[on], NULL });
		job.batch.micro = 1;
		job.batch.logits = 128;
		for (int64_t vocab = 49000; vocab < 260000; vocab += vocab / 7 + 31)
			for (job.model.seq = 1; job.model.seq < 6000; job.model.seq++)
				for (job.parallel.tp = 2; job.parallel.tp <= 6; job.parallel.tp++) {
					struct model_shape m;
					struct layout l = layout_of(&job, 1);
					struct act_dims first, d;
					job.model.vocab = vocab;
					shape_of_job(&job, &m);
					activations_dims_of(&job, &m, &l, 0, false, &first);
					limited += first.rows < first.n;
					for (int tp = 1; tp < l.tp; tp++) {
						activations_dims_of(&job, &m, &l, tp, false, &d);
						assert_int_equal(d.rows, first.rows);
					}
				}
	}
	assert_true(limited > 10000);
}

/* With tp, shards of a vocabulary have uneven sizes; each has whole rows. */
static void padding_takes_scratch_only_where_rows_have_gaps(void **state)
{
	static const char *const words[] = { GPT2, "job.device=cuda", "parallel.tp=4", NULL };
	struct job job = job_of(words);
	struct model_shape m;
	int64_t columns = 0;
	(void)state;
	for (int64_t vocab = 50257; vocab <= 51200; vocab += 943) {
		job.model.vocab = vocab;
		shape_of_job(&job, &m);
		struct layout l = layout_of(&job, 1);
		columns = 0;
		for (int tp = 0; tp < 4; tp++) {
			struct act_dims d;
			activations_dims_of(&job, &m, &l, tp, false, &d);
			columns += d.vocab;
			assert_int_equal(activations_scratch_bytes(&d, true, SCRATCH_LOGITS),
					 d.rows * d.logits_row * 2);
			assert_int_equal(activations_scratch_bytes(&d, true, SCRATCH_HEAD),
					 d.logits_row > d.vocab ? d.logits_row * 768 * 2 : 0);
			assert_int_equal(activations_scratch_bytes(&d, false, SCRATCH_HEAD), 0);
		}
		assert_int_equal(columns, vocab);
	}
}

/* One node of one GPU with so much memory. */
static double plan_with(const struct job *job, double memory, int64_t *logits, double *needs)
{
	struct node_kind kind = { .name = "node",
				  .device = "gpu",
				  .devices = 1,
				  .cores = 16,
				  .memory = 1e12,
				  .device_memory = memory,
				  .device_flops = 700e12,
				  .device_bandwidth = 4e12,
				  .link_bandwidth = 300e9,
				  .link_latency = 2e-6,
				  .net_bandwidth = 25e9,
				  .net_latency = 5e-6 };
	struct cluster_node node = { .leaf = -1, .domain = -1 };
	struct cluster c = { .n_kinds = 1, .kinds = &kind, .n_nodes = 1, .nodes = &node };
	struct plan p;
	struct err e = ERR_INIT;
	snprintf(c.name, sizeof c.name, "one");
	snprintf(node.name, sizeof node.name, "n0");
	if (plan_build(job, &c, &p, &e)) {
		*logits = 0;
		return 0;
	}
	double time = p.time.total;
	*logits = p.logits;
	*needs = p.ranks[0].total;
	plan_free(&p);
	return time;
}

static void a_plan_takes_the_largest_chunks_for_which_there_is_memory(void **state)
{
	static const char *const words[] = { LLAMA_1B, "job.device=cuda", NULL };
	struct job job = job_of(words);
	double runtime = 2.0 * (1 << 30), most, needs = 0, time, last = 0;
	int64_t got, steps = 0;
	(void)state;
	last = plan_with(&job, 200e9, &got, &most);
	assert_int_equal(got, 4096);
	for (int64_t want = 4096; want >= 128; want /= 2, steps++) {
		struct job mine = job;
		mine.batch.logits = want;
		time = plan_with(&mine, 200e9, &got, &needs);
		assert_int_equal(got, want);
		assert_true(want == 4096 ? time == last : time > last && needs < most);
		last = time;
		/* exactly enough, and a byte less */
		assert_true(plan_with(&job, needs + runtime, &got, &most) == time);
		assert_int_equal(got, want);
		plan_with(&job, needs + runtime - 1, &got, &most);
		assert_int_equal(got, want / 2 >= 128 ? want / 2 : 0);
		most = needs;
	}
	assert_int_equal(steps, 6);
	job.batch.logits = 64; /* below the least that muster would choose */
	plan_with(&job, 200e9, &got, &needs);
	assert_true(got == 64 && needs < most);
}

static void a_plan_shows_the_chunks(void **state)
{
	static const char *const words[] = { LLAMA_1B, "job.device=cuda", "parallel.dp=1",
					     "batch.logits=1024", NULL };
	struct job job = job_of(words);
	struct cluster c;
	struct plan p;
	struct buf text = BUF_INIT;
	struct err e = ERR_INIT;
	(void)state;
	assert_int_equal(topo_cluster_open("dgx-h100:1", 4, &c, &e), 0);
	assert_int_equal(plan_build(&job, &c, &p, &e), 0);
	show_plan_text(&job, &c, &p, &text);
	assert_non_null(
		strstr(buf_str(&text), "logits in 4 chunks of at most 1024 MiB (batch.logits)\n"));
	buf_clear(&text);
	plan_free(&p);
	job.batch.logits = 4096;
	assert_int_equal(plan_build(&job, &c, &p, &e), 0);
	show_plan_text(&job, &c, &p, &text);
	assert_null(strstr(buf_str(&text), "chunks of at most"));
	buf_fini(&text);
	plan_free(&p);
	topo_cluster_free(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_processor_s_chunks_are_256_mib_of_fp32),
		cmocka_unit_test(a_device_s_chunks_are_whole_tiles_within_the_limit),
		cmocka_unit_test(a_step_moves_the_head_s_gradient_once),
		cmocka_unit_test(tp_ranks_compute_the_same_rows),
		cmocka_unit_test(padding_takes_scratch_only_where_rows_have_gaps),
		cmocka_unit_test(a_plan_takes_the_largest_chunks_for_which_there_is_memory),
		cmocka_unit_test(a_plan_shows_the_chunks),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
