/* Tests the ledger and the audit of it: restarts, layouts, truncated lines, full disks, and every
 * way in which a run is not proven. */
#include "agent/engine/data/audit.h"
#include "agent/engine/data/feed.h"
#include "agent/engine/data/ledger.h"
#include "agent/engine/data/ledger_parts.h"
#include "agent/engine/data/tokens.h"
#include "base/file.h"
#include "tests/unit/agent/world.h"
#include "tests/unit/tmpdir.h"

#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

enum { SEQ = 8, VOCAB = 256, SEED = 11 };

static char dir[64], prefix[80], ledger[96];
/* What the next generation skips, and how much the run had skipped before it. */
static struct ledger_skip skips[2];
static int64_t skipped;
static int64_t split; /* of the ledger; 0: as usual */

static int make_data(void **state)
{
	struct token_writer *w;
	(void)state;
	memset(skips, 0, sizeof skips);
	skipped = split = 0;
	if (!tmpdir_make(dir, sizeof dir))
		return -1;
	snprintf(prefix, sizeof prefix, "%s/d", dir);
	snprintf(ledger, sizeof ledger, "%s/" LEDGER_NAME, dir);
	if (data_token_writer_open(prefix, TOKEN_U8, &w, NULL))
		return -1;
	for (int i = 0; i < 100 * SEQ; i++) {
		unsigned char v = (unsigned char)(i * 7 + i / 31);
		if (data_token_writer_add(w, &v, 1, NULL))
			return -1;
	}
	int rc = data_token_writer_end(w, NULL) || data_token_writer_commit(w, NULL);
	data_token_writer_close(w);
	return rc ? -1 : 0;
}

static int remove_data(void **state)
{
	char path[128];
	(void)state;
	unlink(ledger);
	for (int i = 1; i < 100; i++) {
		snprintf(path, sizeof path, "%s/ledger.%d.jsonl", dir, i);
		unlink(path);
	}
	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof path, "%s.%s", prefix, i ? "idx" : "bin");
		unlink(path);
	}
	return rmdir(dir);
}

/* --- a run: its generations are worlds of ranks --- */

struct generation {
	uint32_t number;
	int64_t step, samples, global; /* where it begins */
	int steps, flush_every, drop;  /* it dies after `steps`; the last `drop` were not flushed */
	int dp, copies;                /* replicas, ranks per replica */
	int64_t shares[4];             /* each replica's share */
	int liar;                      /* the rank that read other samples; -1: none */
};

static int train(struct comm *world, void *arg, struct err *e)
{
	const struct generation *g = arg;
	struct dataset *data;
	struct ledger *l;
	struct feed *f;
	int replica = comm_rank(world) / g->copies;
	int64_t offset = 0;
	json_t *layout = json_pack("{s:i, s:i}", "dp", g->dp, "tp", g->copies);
	for (int i = 0; i < replica; i++)
		offset += g->shares[i];
	if (dataset_open(prefix, SEQ, 0.1, &data, e))
		return -1;
	struct ledger_options o = {
		.world = world,
		.dir = dir,
		.generation = g->number,
		.step = g->step,
		.samples = g->samples,
		.data = data,
		.seed = SEED,
		.layout = layout,
		.replica = replica,
		.offset = offset,
		.share = g->shares[replica],
		.global = g->global,
		.split = split,
	};
	struct feed_options fo = {
		.data = data,
		.split = DATA_TRAIN,
		.seed = comm_rank(world) == g->liar ? SEED + 1 : SEED,
		.vocab = VOCAB,
		.position = g->samples,
		.global = g->global,
		.offset = offset,
		.share = g->shares[replica],
		.steps = g->steps,
		.ahead = 1,
	};
	struct ranges left_out = { 0 };
	for (int i = 0; i < 2 && skips[i].count; i++, o.n_skips++)
		if (ranges_add(&left_out, skips[i].first, skips[i].count, e))
			return -1;
	o.skips = skips;
	o.skipped = fo.skipped = skipped;
	fo.position += skipped;
	fo.skips = &left_out;
	int rc = data_ledger_open(&o, &l, e) || data_feed_open(&fo, &f, e) ? -1 : 0;
	for (int i = 1; i <= g->steps && !rc; i++) {
		struct feed_batch b;
		rc = data_feed_next(f, &b, e);
		data_ledger_add(l, &b.digest);
		if (!rc && i % g->flush_every == 0 && i <= g->steps - g->drop)
			rc = data_ledger_flush(l, true, e);
	}
	if (!rc && !g->drop)
		rc = data_ledger_flush(l, true, e);
	data_feed_close(f);
	data_ledger_close(l);
	dataset_close(data);
	json_decref(layout);
	return rc;
}

static int run_generation(struct generation g)
{
	return world_run(g.dp * g.copies, train, &g);
}

static struct audit *read_audit(void)
{
	struct buf text = BUF_INIT;
	struct err e = ERR_INIT;
	struct audit *a;
	if (data_ledger_slurp(dir, 1 << 20, &text, &e) ||
	    data_audit_open(buf_str(&text), text.len, &a, &e))
		fail_msg("%s", e.text);
	buf_fini(&text);
	return a;
}

static void hold_against_data(struct audit *a)
{
	struct err e = ERR_INIT;
	struct dataset *d;
	if (data_audit_dataset(a, NULL, &d, &e) || data_audit_data(a, d, NULL, NULL, &e))
		fail_msg("%s", e.text);
	dataset_close(d);
}

static void expect_proven(struct audit *a, int64_t first, int64_t samples)
{
	if (a->n_findings)
		fail_msg("%s", a->findings[0]);
	assert_int_equal(a->first, first);
	assert_int_equal(a->samples, samples);
}

static void restarts_and_layouts_leave_each_sample_once(void **state)
{
	(void)state;
	/* This generation dies at step 7. It flushed at step 6. */
	assert_int_equal(
		run_generation((struct generation){ 1, 0, 0, 6, 7, 2, 1, 3, 1, { 1, 2, 3 }, -1 }),
		0);
	/* This one starts at step 4, with tp 4. */
	assert_int_equal(
		run_generation((struct generation){ 2, 4, 24, 6, 3, 2, 1, 1, 4, { 6 }, -1 }), 0);
	assert_int_equal(
		run_generation((struct generation){ 3, 6, 36, 6, 4, 100, 0, 2, 2, { 3, 3 }, -1 }),
		0);
	/* This one has another global batch, and crosses an epoch's end. */
	assert_int_equal(
		run_generation((struct generation){ 4, 10, 60, 4, 25, 10, 0, 2, 1, { 1, 3 }, -1 }),
		0);
	struct audit *a = read_audit();
	expect_proven(a, 0, 160);
	hold_against_data(a);
	expect_proven(a, 0, 160);
	assert_int_equal(a->step, 35);
	assert_int_equal(a->undone, 2 * 6); /* flushed, then undone: steps 5 and 6 of the first */
	assert_int_equal(a->n_generations, 4);
	assert_int_equal(a->generations[0].reached, 6);
	assert_int_equal(a->generations[0].undone, 2);
	assert_int_equal(a->generations[1].undone, 0);
	static const char metrics[] = "{\"generation\":1,\"step\":7}\nrubbish\n\n{\"generation\":2,"
				      "\"step\":7}\n{\"generation\":9,\"step\":1}\n";
	data_audit_metrics(a, metrics, sizeof metrics - 1);
	assert_int_equal(a->generations[0].undone, 3);
	assert_int_equal(a->generations[1].undone, 1);
	data_audit_close(a);
}

static void what_rollbacks_skip_is_listed_and_proven(void **state)
{
	(void)state;
	/* It meets the bad step 6, and flushed at step 4. */
	assert_int_equal(
		run_generation((struct generation){ 1, 0, 0, 6, 5, 4, 1, 2, 1, { 4, 2 }, -1 }), 0);
	/* The next one skips the batch, and a range that is behind its position, and dies. */
	skips[0] = (struct ledger_skip){ 30, 6, "step 6" };
	skips[1] = (struct ledger_skip){ 0, 3, "behind" };
	assert_int_equal(
		run_generation((struct generation){ 2, 4, 24, 6, 4, 2, 0, 1, 2, { 6 }, -1 }), 0);
	/* This one continues on another layout, with another batch and another skip. */
	skips[1] = (struct ledger_skip){ 55, 2, "step 9" };
	skipped = 6;
	assert_int_equal(
		run_generation((struct generation){ 3, 8, 48, 4, 5, 5, 0, 2, 1, { 1, 3 }, -1 }), 0);
	struct audit *a = read_audit();
	hold_against_data(a);
	expect_proven(a, 0, 76);
	assert_int_equal(a->step, 13);
	assert_int_equal(a->skipped, 8);
	assert_int_equal(a->n_skips, 2);
	assert_int_equal(a->skips[0].first, 30);
	assert_int_equal(a->skips[0].count, 6);
	assert_int_equal(a->skips[0].generation, 2);
	assert_string_equal(a->skips[0].reason, "step 6");
	assert_int_equal(a->skips[1].first, 55);
	assert_int_equal(a->skips[1].generation, 3);
	data_audit_close(a);
}

/* Merges what the writers' threads left. Returns how many merged lines there are. */
static int merge_all(void)
{
	struct err e = ERR_INIT;
	struct ledger_merging m = { .run = dir, .most = 1 << 20 };
	if (data_ledger_merge_parts(&m, &e))
		fail_msg("%s", e.text);
	struct buf text = BUF_INIT;
	int n = 0;
	assert_int_equal(data_ledger_slurp(dir, 1 << 20, &text, NULL), 0);
	for (const char *at = buf_str(&text); (at = strstr(at, "\"pieces\"")); at++)
		n++;
	buf_fini(&text);
	return n;
}

static void merged_lines_prove_the_tokens_also_if_a_restart_cuts_them(void **state)
{
	(void)state;
	split = 700;
	assert_int_equal(
		run_generation((struct generation){ 1, 0, 0, 6, 40, 2, 0, 2, 2, { 4, 2 }, -1 }), 0);
	assert_true(merge_all() > 0);
	/* This one continues at a step that a merged line has passed, and skips samples. */
	skips[0] = (struct ledger_skip){ 60, 6, "step 11" };
	assert_int_equal(
		run_generation((struct generation){ 2, 10, 60, 6, 30, 3, 0, 1, 1, { 6 }, -1 }), 0);
	merge_all();
	skipped = 6;
	memset(skips, 0, sizeof skips);
	assert_int_equal(
		run_generation((struct generation){ 3, 37, 222, 4, 9, 1, 0, 2, 1, { 1, 3 }, -1 }),
		0);
	merge_all();
	struct audit *a = read_audit();
	hold_against_data(a);
	expect_proven(a, 0, 222 + 36 + 6);
	assert_int_equal(a->step, 46);
	assert_int_equal(a->undone, (30 + 3) * 6);
	assert_int_equal(a->skipped, 6);
	data_audit_close(a);
}

static void tokens_that_differ_are_found_in_merged_lines(void **state)
{
	(void)state;
	split = 700;
	assert_int_equal(
		run_generation((struct generation){ 1, 0, 0, 6, 40, 2, 0, 2, 1, { 4, 2 }, 1 }), 0);
	assert_true(merge_all() > 0);
	struct audit *a = read_audit();
	expect_proven(a, 0, 240);
	hold_against_data(a);
	assert_true(a->n_findings > 0);
	assert_non_null(strstr(a->findings[0], "the replica of samples 4 to 5 of each batch read "
					       "tokens that differ from the data"));
	data_audit_close(a);
}

static void a_run_that_began_with_another_ones_checkpoint_says_so(void **state)
{
	(void)state;
	assert_int_equal(
		run_generation((struct generation){ 1, 5, 30, 6, 4, 2, 0, 1, 1, { 6 }, -1 }), 0);
	struct audit *a = read_audit();
	hold_against_data(a);
	expect_proven(a, 30, 54);
	data_audit_close(a);
}

static void ranks_of_a_replica_that_were_fed_differently_are_named(void **state)
{
	struct err e = ERR_INIT;
	(void)state;
	assert_int_equal(
		run_generation((struct generation){ 1, 0, 0, 6, 2, 1, 0, 2, 2, { 3, 3 }, 3 }), -1);
	struct comm *world = world_alone();
	assert_int_equal(
		train(world, &(struct generation){ 1, 0, 0, 6, 2, 1, 0, 1, 1, { 6 }, -1 }, &e), 0);
	comm_close(world);
}

static void tokens_that_are_not_the_datas_are_found(void **state)
{
	(void)state;
	assert_int_equal(
		run_generation((struct generation){ 1, 0, 0, 6, 4, 2, 0, 2, 1, { 4, 2 }, 1 }), 0);
	struct audit *a = read_audit();
	expect_proven(a, 0, 24); /* the shares tile the batch */
	hold_against_data(a);
	assert_int_equal(a->n_findings, 2);
	assert_string_equal(a->findings[0], "steps 1 to 2 of generation 1: the replica of samples "
					    "4 to 5 of each batch read tokens that differ "
					    "from the data");
	data_audit_close(a);
}

static void data_that_was_changed_since_is_found(void **state)
{
	struct err e = ERR_INIT;
	char bin[96];
	(void)state;
	assert_int_equal(
		run_generation((struct generation){ 1, 0, 0, 90, 1, 2, 0, 1, 1, { 90 }, -1 }), 0);
	snprintf(bin, sizeof bin, "%s.bin", prefix);
	int fd = open(bin, O_WRONLY);
	assert_int_equal(pwrite(fd, "!", 1, 77), 1);
	close(fd);
	struct audit *a = read_audit();
	hold_against_data(a);
	assert_int_equal(a->n_findings, 1);
	data_audit_close(a);
	unlink(bin);
	a = read_audit();
	struct dataset *d;
	assert_int_equal(data_audit_dataset(a, NULL, &d, &e), -1);
	assert_int_equal(data_audit_dataset(a, "/nowhere/at all", &d, &e), -1);
	data_audit_close(a);
}

static void a_line_that_a_kill_cut_counts_for_nothing(void **state)
{
	struct buf text = BUF_INIT;
	(void)state;
	assert_int_equal(
		run_generation((struct generation){ 1, 0, 0, 6, 4, 2, 0, 1, 1, { 6 }, -1 }), 0);
	assert_int_equal(file_slurp(ledger, 1 << 20, &text, NULL), 0);
	assert_int_equal(truncate(ledger, (off_t)text.len - 30), 0);
	assert_int_equal(
		run_generation((struct generation){ 2, 2, 12, 6, 4, 4, 0, 1, 1, { 6 }, -1 }), 0);
	struct audit *a = read_audit();
	hold_against_data(a);
	expect_proven(a, 0, 36);
	assert_int_equal(a->unreadable, 1);
	data_audit_close(a);
	buf_fini(&text);
}

static void what_a_full_disk_refused_is_written_later(void **state)
{
	struct err e = ERR_INIT;
	struct rlimit was, small;
	struct dataset *data;
	struct ledger *l;
	struct comm *world = world_alone();
	json_t *layout = json_object();
	int32_t room[2 * SEQ];
	(void)state;
	assert_int_equal(dataset_open(prefix, SEQ, 0.1, &data, &e), 0);
	struct ledger_options o = {
		.world = world,
		.dir = dir,
		.generation = 1,
		.data = data,
		.seed = SEED,
		.layout = layout,
		.share = 2,
		.global = 2,
	};
	assert_int_equal(data_ledger_open(&o, &l, &e), 0);
	assert_string_equal(data_ledger_note(l), "");
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
	small = was;
	small.rlim_cur = 300;
	signal(SIGXFSZ, SIG_IGN);
	for (int step = 0; step < 6; step++) {
		struct digest d;
		assert_int_equal(
			data_feed_digest(data, DATA_TRAIN, SEED, VOCAB,
					 &(struct feed_share){ .position = 2 * step, .count = 2 },
					 room, &d, &e),
			0);
		data_ledger_add(l, &d);
		assert_int_equal(setrlimit(RLIMIT_FSIZE, step < 4 ? &small : &was), 0);
		int rc = data_ledger_flush(l, true, &e);
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
		assert_int_equal(rc, 0);
		assert_int_equal(*data_ledger_note(l) != '\0', step < 4);
		assert_string_equal(data_ledger_note(l), "");
	}
	data_ledger_close(l);
	dataset_close(data);
	json_decref(layout);
	comm_close(world);
	struct audit *a = read_audit();
	hold_against_data(a);
	expect_proven(a, 0, 12);
	data_audit_close(a);
}

/* --- what is not proven --- */

#define D "00000000000000000000000000000000"
#define ORDER(seed) \
	"\"order\":{\"seed\":\"" seed "\",\"seq\":8,\"validation\":0.5,\"sources\":[{\"path\":" \
	"\"x\",\"weight\":1,\"tokens\":99,\"samples\":5}]}"
#define START(g, step, samples) \
	"{\"event\":\"start\",\"generation\":" #g ",\"step\":" #step ",\"samples\":" #samples \
	"," ORDER("1") ",\"layout\":{}}\n"
#define STEPS(g, a, b, first, replicas) \
	"{\"event\":\"steps\",\"generation\":" #g ",\"from\":" #a ",\"to\":" #b \
	",\"first\":" #first ",\"global\":4,\"replicas\":[" replicas "]}\n"
#define SKIP(g, first, count) \
	"{\"event\":\"skip\",\"generation\":" #g ",\"first\":" #first ",\"count\":" #count \
	",\"reason\":\"x\"}\n"
#define BEHIND(g, step, samples, skipped) \
	"{\"event\":\"start\",\"generation\":" #g ",\"step\":" #step ",\"samples\":" #samples \
	",\"skipped\":" #skipped "," ORDER("1") ",\"layout\":{}}\n"
#define ALL "[0,4,\"" D "\"]"

/* clang-format off */
static const struct {
	const char *what, *text;
	int findings;
	const char *says;
	int64_t first, samples;
} ledgers[] = {
	{ "nothing yet", START(1, 0, 0), 0, NULL, 0, 0 },
	{ "one line", START(1, 0, 0) STEPS(1, 0, 3, 0, ALL), 0, NULL, 0, 12 },
	{ "a start that took all back", START(1, 0, 0) STEPS(1, 0, 3, 0, ALL) START(2, 0, 0), 0, NULL, 0, 0 },
	{ "a gap that was taken back", START(1, 0, 0) STEPS(1, 2, 3, 8, ALL) START(2, 0, 0) STEPS(2, 0, 1, 0, ALL), 0, NULL, 0, 4 },
	{ "a dead generation's late line", START(1, 0, 0) START(2, 0, 0) STEPS(1, 0, 2, 0, ALL) STEPS(2, 0, 1, 0, ALL), 0, NULL, 0, 4 },
	{ "rubbish between", START(1, 0, 0) "x\n{}\n[]\n\n{\"event\":7}\n" STEPS(1, 0, 1, 0, ALL), 0, NULL, 0, 4 },
	{ "a gap", START(1, 0, 0) STEPS(1, 0, 1, 0, ALL) STEPS(1, 2, 3, 8, ALL), 1, "samples 4 to 7 are missing", 0, 12 },
	{ "the first lines lost", START(1, 0, 0) START(2, 2, 8) STEPS(2, 2, 3, 8, ALL), 1, "samples 0 to 7 are missing", 0, 12 },
	{ "a start behind the end", START(1, 0, 0) STEPS(1, 0, 1, 0, ALL) START(2, 2, 8), 1, "samples 4 to 7 are missing", 0, 8 },
	{ "a start within a line", START(1, 0, 0) STEPS(1, 0, 4, 0, ALL) START(2, 2, 8) STEPS(2, 2, 3, 8, ALL), 1,
	  "samples 0 to 7 are missing", 0, 12 },
	{ "a repeat", START(1, 0, 0) STEPS(1, 0, 2, 0, ALL) STEPS(1, 1, 3, 4, ALL), 1, "samples 4 to 7 come twice", 0, 12 },
	{ "a repeat under later steps", START(1, 0, 0) STEPS(1, 0, 2, 0, ALL) STEPS(1, 2, 3, 4, ALL), 1, "samples 4 to 7 come twice", 0, 8 },
	{ "steps that do not follow", START(1, 0, 0) STEPS(1, 0, 2, 0, ALL) STEPS(1, 3, 4, 8, ALL), 1, "continues after step 3", 0, 12 },
	{ "no replica", START(1, 0, 0) STEPS(1, 0, 2, 0, ""), 1, "no replica read the samples 0 to 3 of each batch", 0, 8 },
	{ "a hole", START(1, 0, 0) STEPS(1, 0, 2, 0, "[3,1,\"" D "\"],[0,2,\"" D "\"]"), 1, "no replica read the samples 2 to 2", 0, 8 },
	{ "a short end", START(1, 0, 0) STEPS(1, 0, 2, 0, "[0,3,\"" D "\"]"), 1, "no replica read the samples 3 to 3", 0, 8 },
	{ "an overlap", START(1, 0, 0) STEPS(1, 0, 2, 0, "[0,3,\"" D "\"],[2,2,\"" D "\"]"), 1, "two replicas read the samples 2 to 2", 0, 8 },
	{ "the same share twice", START(1, 0, 0) STEPS(1, 0, 2, 0, ALL "," ALL), 1, "two replicas read the samples 0 to 3", 0, 8 },
	{ "an empty share", START(1, 0, 0) STEPS(1, 0, 2, 0, "[2,0,\"" D "\"]," ALL), 0, NULL, 0, 8 },
	{ "a share beyond the batch", START(1, 0, 0) STEPS(1, 0, 2, 0, "[0,5,\"" D "\"]") START(2, 2, 8), 1, "samples 0 to 7 are missing", 0, 8 },
	{ "a skip", START(1, 0, 0) SKIP(1, 4, 4) STEPS(1, 0, 2, 0, ALL), 0, NULL, 0, 12 },
	{ "a skip that steps have not passed", START(1, 0, 0) SKIP(1, 8, 4) STEPS(1, 0, 2, 0, ALL), 0, NULL, 0, 8 },
	{ "a skip since a restart", START(1, 0, 0) STEPS(1, 0, 1, 0, ALL) STEPS(1, 1, 3, 4, ALL) START(2, 1, 4) SKIP(2, 4, 4)
	  STEPS(2, 1, 3, 4, ALL) BEHIND(3, 3, 12, 4) STEPS(3, 3, 4, 16, ALL), 0, NULL, 0, 20 },
	{ "a skip without its line", START(1, 0, 0) STEPS(1, 0, 2, 0, ALL) BEHIND(2, 2, 8, 4) STEPS(2, 2, 3, 12, ALL), 1,
	  "samples 8 to 11 are missing", 0, 16 },
	{ "a skip of samples that were read", START(1, 0, 0) STEPS(1, 0, 2, 0, ALL) START(2, 2, 8) SKIP(2, 4, 4) STEPS(2, 2, 3, 8, ALL), 0,
	  NULL, 0, 12 },
	{ "a dead generation's skip", START(1, 0, 0) START(2, 0, 0) SKIP(1, 0, 4) STEPS(2, 0, 1, 0, ALL), 0, NULL, 0, 4 },
	{ "a skip of nothing", START(1, 0, 0) SKIP(1, 0, 0) STEPS(1, 0, 1, 0, ALL), 0, NULL, 0, 4 },
	{ "another seed", START(1, 0, 0) STEPS(1, 0, 1, 0, ALL)
	  "{\"event\":\"start\",\"generation\":2,\"step\":1,\"samples\":4," ORDER("2") ",\"layout\":{}}\n" STEPS(2, 1, 2, 4, ALL), 1,
	  "generation 2 has another order of samples than generation 1", 0, 8 },
	{ "another seed, taken back", START(1, 0, 0) STEPS(1, 0, 1, 0, ALL)
	  "{\"event\":\"start\",\"generation\":2,\"step\":1,\"samples\":4," ORDER("2") ",\"layout\":{}}\n" STEPS(2, 1, 2, 4, ALL)
	  START(3, 1, 4) STEPS(3, 1, 3, 4, ALL), 0, NULL, 0, 12 },
};
/* clang-format on */

static void what_is_missing_or_double_is_named(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof ledgers / sizeof *ledgers; i++) {
		struct err e = ERR_INIT;
		struct audit *a;
		if (data_audit_open(ledgers[i].text, strlen(ledgers[i].text), &a, &e))
			fail_msg("%s: %s", ledgers[i].what, e.text);
		const char *first = a->findings[0] ? a->findings[0] : "";
		if (a->n_findings != ledgers[i].findings || a->first != ledgers[i].first ||
		    a->samples != ledgers[i].samples ||
		    (ledgers[i].says && !strstr(first, ledgers[i].says)))
			fail_msg("%s: %d findings, samples %d to %d: %s", ledgers[i].what,
				 (int)a->n_findings, (int)a->first, (int)a->samples, first);
		data_audit_close(a);
	}
	struct audit *none;
	assert_int_equal(data_audit_open("", 0, &none, NULL), -1);
	assert_int_equal(data_audit_open(STEPS(1, 0, 1, 0, ALL), sizeof STEPS(1, 0, 1, 0, ALL) - 1,
					 &none, NULL),
			 -1);
}

static void many_findings_are_counted(void **state)
{
	char text[20000] = START(1, 0, 0);
	struct audit *a;
	(void)state;
	for (int i = 0; i < 50; i++)
		snprintf(text + strlen(text), sizeof text - strlen(text), STEPS(1, 0, 1, 0, ""));
	assert_int_equal(data_audit_open(text, strlen(text), &a, NULL), 0);
	assert_int_equal(a->n_findings, 50 + 49);
	assert_non_null(a->findings[AUDIT_FINDINGS_MAX - 1]);
	data_audit_close(a);
}

static void a_ledger_that_claims_more_than_there_can_be_is_counted_to_the_most(void **state)
{
	char text[4000] = START(1, 0, 0);
	struct audit *a;
	(void)state;
	for (int i = 0; i < 10; i++)
		strcat(text, "{\"event\":\"steps\",\"generation\":7,\"from\":0,\"to\":"
			     "1000000000000,\"first\":0,\"global\":2000000,\"replicas\":[]}\n");
	assert_int_equal(data_audit_open(text, strlen(text), &a, NULL), 0);
	assert_int_equal(a->unreadable, 0);
	assert_true(a->undone == INT64_MAX);
	data_audit_close(a);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, make_data, remove_data)
	/* clang-format off */
	const struct CMUnitTest tests[] = {
		TEST(restarts_and_layouts_leave_each_sample_once),
		TEST(what_rollbacks_skip_is_listed_and_proven),
		TEST(merged_lines_prove_the_tokens_also_if_a_restart_cuts_them),
		TEST(tokens_that_differ_are_found_in_merged_lines),
		TEST(a_run_that_began_with_another_ones_checkpoint_says_so),
		TEST(ranks_of_a_replica_that_were_fed_differently_are_named),
		TEST(tokens_that_are_not_the_datas_are_found),
		TEST(data_that_was_changed_since_is_found),
		TEST(a_line_that_a_kill_cut_counts_for_nothing),
		TEST(what_a_full_disk_refused_is_written_later),
		cmocka_unit_test(what_is_missing_or_double_is_named),
		cmocka_unit_test(many_findings_are_counted),
		cmocka_unit_test(a_ledger_that_claims_more_than_there_can_be_is_counted_to_the_most),
	};
	/* clang-format on */
	return cmocka_run_group_tests_name("data ledger", tests, NULL, NULL);
}
