/* Tests the parts of a ledger and their merging: an audit of merged lines gives the same answer as an
 * audit of all lines, for random histories with restarts, skips, damage and crashes. SEED repeats a
 * history. MUSTER_LARGE writes the ledger of a whole year. */
#include "agent/engine/data/audit.h"
#include "agent/engine/data/ledger_merge.h"
#include "agent/engine/data/ledger_parts.h"
#include "base/file.h"
#include "base/segments.h"
#include "tests/unit/tmpdir.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST = 1 << 30, MARKS = 4096 };

static char dir[64];

static int make_dir(void **state)
{
	(void)state;
	return tmpdir_make(dir, sizeof dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	(void)state;
	file_remove_tree(dir);
	return 0;
}

/* --- a random history --- */

struct history {
	uint64_t random;
	struct buf text;  /* all lines */
	struct buf fresh; /* those that are not in the file yet */
	int64_t generation, step, position, global, every;
	int64_t shares[3];
	struct ranges skips;
	int64_t mark_step[MARKS], mark_position[MARKS]; /* where checkpoints are */
	int n_marks;
	bool calm; /* it skips nothing and keeps its order */
};

static uint64_t draw(struct history *h, uint64_t n)
{
	h->random = h->random * 6364136223846793005u + 1442695040888963407u;
	return (h->random >> 33) % n;
}

static void add_text(struct history *h, const char *text)
{
	buf_puts(&h->fresh, text);
	buf_puts(&h->text, text);
}

static void add_mark(struct history *h)
{
	if (h->n_marks == MARKS)
		h->n_marks = MARKS / 2;
	h->mark_step[h->n_marks] = h->step;
	h->mark_position[h->n_marks++] = h->position;
}

static void add_start(struct history *h)
{
	char text[600];
	h->generation++;
	h->global = draw(h, 4) ? 6 : 4;
	h->every = 1 + (int64_t)draw(h, 4);
	h->shares[0] = (int64_t)draw(h, (uint64_t)h->global + 1);
	h->shares[1] = (int64_t)draw(h, (uint64_t)(h->global - h->shares[0]) + 1);
	h->shares[2] = h->global - h->shares[0] - h->shares[1];
	h->skips = (struct ranges){ 0 };
	snprintf(text, sizeof text,
		 "{\"event\":\"start\",\"generation\":%lld,\"step\":%lld,\"samples\":%lld,"
		 "\"order\":{\"seed\":\"%d\",\"seq\":8,\"validation\":0.5,\"sources\":[{\"path\":"
		 "\"x\",\"weight\":1,\"tokens\":99,\"samples\":5}]},\"layout\":{\"dp\":3}}\n",
		 (long long)h->generation, (long long)h->step, (long long)h->position,
		 h->calm || draw(h, 20) ? 1 : 2);
	add_text(h, text);
	for (uint64_t i = draw(h, 6); i < 3 && !h->calm; i++) {
		int64_t first = h->position + (int64_t)draw(h, 60), count = 1 + (int64_t)draw(h, 9);
		snprintf(text, sizeof text,
			 "{\"event\":\"skip\",\"generation\":%lld,\"first\":%lld,\"count\":%lld,"
			 "\"reason\":\"step %d\"}\n",
			 (long long)h->generation, (long long)first, (long long)count, (int)i);
		add_text(h, text);
		assert_int_equal(ranges_add(&h->skips, first, count, NULL), 0);
	}
}

/* A restart continues from the last checkpoint, an earlier one, or, in a broken history, from a step
 * that has none. */
static void restart(struct history *h, bool broken)
{
	if (h->n_marks && draw(h, 3))
		h->n_marks -= (int)draw(h, (uint64_t)(draw(h, 3) || h->n_marks < 3
							      ? 1 + (h->n_marks > 4) * 4
							      : h->n_marks));
	h->step = h->n_marks ? h->mark_step[h->n_marks - 1] : 0;
	h->position = h->n_marks ? h->mark_position[h->n_marks - 1] : 0;
	if (broken && h->step > 1 && !draw(h, 4)) {
		h->step--;
		h->position = h->position > h->global ? h->position - h->global : 0;
	}
	add_start(h);
}

static void add_steps(struct history *h, int64_t generation, int64_t from, int64_t to,
		      int64_t first, bool tiles)
{
	struct ledger_line l = { .generation = generation,
				 .from = from,
				 .to = to,
				 .first = first,
				 .global = h->global,
				 .n = 3 };
	struct buf text = BUF_INIT;
	struct ledger_replica replicas[3];
	int64_t at = 0;
	for (int i = 0; i < 3; i++) {
		for (size_t b = 0; b < sizeof replicas[i].digest; b++)
			((unsigned char *)&replicas[i].digest)[b] = (unsigned char)draw(h, 256);
		replicas[i].offset = at;
		replicas[i].share = h->shares[i];
		at += h->shares[i];
	}
	l.replicas = replicas;
	l.n = tiles ? 3 : 1;
	assert_int_equal(data_ledger_write_steps(&text, &l, NULL), 0);
	add_text(h, buf_str(&text));
	buf_fini(&text);
}

static void advance(struct history *h)
{
	int64_t n = draw(h, 8) ? h->every : 1 + (int64_t)draw(h, 5);
	add_steps(h, h->generation, h->step, h->step + n, h->position, true);
	h->step += n;
	h->position = ranges_end(&h->skips, h->position, n * h->global);
	add_mark(h);
}

/* What a killed process, a dead generation or a bug may leave. */
static void damage(struct history *h)
{
	switch (draw(h, 7)) {
	case 0:
		add_text(h, "{\"event\":\"steps\",\"generation\":1,\"fr\n");
		break;
	case 1:
		add_steps(h, h->generation - 1, h->step, h->step + 2, h->position, true);
		break;
	case 2:
		add_steps(h, h->generation, h->step, h->step + 1, h->position, false);
		break;
	case 3:
		add_steps(h, h->generation, h->step + 1, h->step + 2, h->position + 6, true);
		break;
	case 4:
		if (h->step > 1)
			add_steps(h, h->generation, h->step - 1, h->step,
				  h->position > h->global ? h->position - h->global : 0, true);
		break;
	case 5:
		add_text(h, "\n[]\n");
		break;
	default:
		h->step += 1;
		h->position += h->global;
	}
}

/* --- two audits --- */

static struct audit *audit_text(struct buf *text)
{
	struct err e = ERR_INIT;
	struct audit *a;
	if (data_audit_open(buf_str(text), text->len, &a, &e))
		fail_msg("%s", e.text);
	return a;
}

static struct audit *audit_files(size_t *size)
{
	struct buf text = BUF_INIT;
	struct err e = ERR_INIT;
	if (data_ledger_slurp(dir, MOST, &text, &e))
		fail_msg("%s", e.text);
	struct audit *a = audit_text(&text);
	if (size)
		*size = text.len;
	buf_fini(&text);
	return a;
}

static void expect_same(struct audit *a, struct audit *b)
{
	assert_int_equal(a->n_findings, b->n_findings);
	for (int i = 0; i < AUDIT_FINDINGS_MAX && a->findings[i]; i++)
		assert_string_equal(a->findings[i], b->findings[i]);
	assert_int_equal(a->first, b->first);
	assert_int_equal(a->samples, b->samples);
	assert_int_equal(a->step, b->step);
	assert_int_equal(a->skipped, b->skipped);
	assert_int_equal(a->undone, b->undone);
	assert_int_equal(a->unreadable, b->unreadable);
	assert_int_equal(a->n_generations, b->n_generations);
	for (int i = 0; i < a->n_generations; i++) {
		assert_int_equal(a->generations[i].generation, b->generations[i].generation);
		assert_int_equal(a->generations[i].step, b->generations[i].step);
		assert_int_equal(a->generations[i].position, b->generations[i].position);
		assert_int_equal(a->generations[i].reached, b->generations[i].reached);
		assert_int_equal(a->generations[i].undone, b->generations[i].undone);
	}
	/* A skip that is within two lines may be listed once for both. */
	int k = 0;
	for (int i = 0; i < b->n_skips; i++) {
		int64_t at = b->skips[i].first, end = at + b->skips[i].count;
		for (; k < a->n_skips && at < end; k++) {
			assert_int_equal(a->skips[k].first, at);
			assert_int_equal(a->skips[k].generation, b->skips[i].generation);
			assert_string_equal(a->skips[k].reason, b->skips[i].reason);
			at += a->skips[k].count;
		}
		assert_int_equal(at, end);
	}
	assert_int_equal(k, a->n_skips);
	for (int64_t step = 0; step <= a->step + 2; step++)
		assert_int_equal(data_audit_position(a, step), data_audit_position(b, step));
}

/* --- the files --- */

static void append(const char *text, size_t n)
{
	char path[RUN_PATH];
	segments_path(path, dir, LEDGER_NAME, 0);
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
	assert_true(fd >= 0);
	assert_int_equal(file_write_full(fd, text, n), 0);
	close(fd);
}

static bool split(void)
{
	bool locked, done;
	int fd;
	assert_int_equal(data_ledger_open_file(dir, &fd, &locked, NULL), 0);
	assert_true(locked);
	done = data_ledger_split(dir, fd);
	close(fd);
	return done;
}

static int merge(off_t most)
{
	struct err e = ERR_INIT;
	struct ledger_merging m = { .run = dir, .generation = 1, .most = most };
	if (data_ledger_merge_parts(&m, &e))
		fail_msg("%s", e.text);
	return m.merged;
}

static int count_parts(uint32_t *last)
{
	struct segments s;
	assert_int_equal(segments_list(dir, LEDGER_NAME, &s, NULL), 0);
	int n = s.n;
	if (last)
		*last = n ? s.numbers[n - 1] : 0;
	segments_free(&s);
	return n;
}

/* As if muster was killed before it removed the parts that the last one holds. */
static void merge_and_crash(off_t most)
{
	struct segments s;
	struct buf kept[64] = { 0 };
	char path[RUN_PATH];
	assert_int_equal(segments_list(dir, LEDGER_NAME, &s, NULL), 0);
	assert_true(s.n < 64);
	for (int i = 0; i < s.n; i++) {
		segments_path(path, dir, LEDGER_NAME, s.numbers[i]);
		assert_int_equal(file_slurp(path, MOST, &kept[i], NULL), 0);
	}
	merge(most);
	for (int i = 0; i < s.n; i++) {
		segments_path(path, dir, LEDGER_NAME, s.numbers[i]);
		if (access(path, F_OK))
			assert_int_equal(file_replace(path, buf_str(&kept[i]), kept[i].len, NULL),
					 0);
		buf_fini(&kept[i]);
	}
	segments_free(&s);
}

static void live(struct history *h, bool broken)
{
	restart(h, broken);
	for (int i = 0; i < 60; i++) {
		if (!draw(h, 12))
			restart(h, broken);
		else if (broken && !draw(h, 10))
			damage(h);
		else
			advance(h);
		if (!draw(h, 4)) {
			append(buf_str(&h->fresh), h->fresh.len);
			buf_clear(&h->fresh);
			if (!draw(h, 2))
				assert_true(split());
			static const off_t most[] = { 0, 2000, MOST };
			if (!draw(h, 4))
				merge_and_crash(most[draw(h, 3)]);
			else if (draw(h, 3))
				merge(most[draw(h, 3)]);
		}
	}
	append(buf_str(&h->fresh), h->fresh.len);
	buf_clear(&h->fresh);
}

static void merged_lines_prove_what_the_lines_proved(void **state)
{
	const char *given = getenv("SEED");
	uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL) * 1000;
	int runs = given ? 1 : 300;
	size_t plain = 0, merged = 0;
	(void)state;
	for (int i = 0; i < runs; i++) {
		struct history h = { .random = seed + (uint64_t)i };
		print_message(i == 0 || i == runs - 1 ? "SEED=%llu\n" : "",
			      (unsigned long long)(seed + (uint64_t)i));
		live(&h, h.random % 2);
		size_t size;
		struct audit *a = audit_text(&h.text), *b = audit_files(&size);
		expect_same(a, b);
		plain += h.text.len;
		merged += size;
		data_audit_close(a);
		data_audit_close(b);
		buf_fini(&h.text);
		buf_fini(&h.fresh);
		file_remove_tree(dir);
		assert_int_equal(mkdir(dir, 0700), 0);
	}
	if (!given)
		assert_true(merged < plain);
}

static void write_lines(struct history *h, int lines)
{
	for (int i = 0; i < lines; i++)
		advance(h);
	append(buf_str(&h->fresh), h->fresh.len);
	buf_clear(&h->fresh);
}

/* A history of one generation that is in `parts` parts and the file. */
static void write_parts(struct history *h, int parts)
{
	*h = (struct history){ .random = 7, .calm = true };
	add_start(h);
	for (int i = 0; i <= parts; i++) {
		write_lines(h, 20);
		assert_true(i == parts || split());
	}
}

static void expect_proven(struct history *h)
{
	struct audit *a = audit_files(NULL), *b = audit_text(&h->text);
	assert_int_equal(a->n_findings, 0);
	expect_same(b, a);
	data_audit_close(a);
	data_audit_close(b);
}

static void end_history(struct history *h)
{
	buf_fini(&h->text);
	buf_fini(&h->fresh);
}

/* --- what is merged with what --- */

#define START(g, step, samples) \
	"{\"event\":\"start\",\"generation\":" #g ",\"step\":" #step ",\"samples\":" #samples \
	",\"order\":{\"seed\":\"1\",\"seq\":8,\"validation\":0.5,\"sources\":[{\"path\":\"x\"," \
	"\"weight\":1,\"tokens\":99,\"samples\":5}]},\"layout\":{}}\n"
#define DIGEST "00000000000000000000000000000000"
#define LINE(g, from, to, first, more, share) \
	"{\"event\":\"steps\",\"generation\":" #g ",\"from\":" #from ",\"to\":" #to \
	",\"first\":" #first ",\"global\":4," more "\"replicas\":[[0," #share ",\"" DIGEST \
	"\"]]}\n"
#define STEPS(g, from, to, first)          LINE(g, from, to, first, "", 4)
#define MERGED(g, from, to, first, pieces) LINE(g, from, to, first, "\"pieces\":" pieces ",", 4)
#define SKIP(g, first, count) \
	"{\"event\":\"skip\",\"generation\":" #g ",\"first\":" #first ",\"count\":" #count \
	",\"reason\":\"x\"}\n"

/* clang-format off */
static const struct {
	const char *what, *text, *merged; /* digests are not compared */
} merges[] = {
	{ "lines that continue each other", START(1, 0, 0) STEPS(1, 0, 2, 0) STEPS(1, 2, 4, 8) STEPS(1, 4, 5, 16),
	  START(1, 0, 0) MERGED(1, 0, 5, 0, "[[2,2],[1,1]]") },
	{ "one line", START(1, 0, 0) STEPS(1, 0, 2, 0), START(1, 0, 0) STEPS(1, 0, 2, 0) },
	{ "a merged line takes lines in", START(1, 0, 0) MERGED(1, 0, 4, 0, "[[2,2]]") STEPS(1, 4, 6, 16), START(1, 0, 0) MERGED(1, 0, 6, 0, "[[2,3]]") },
	{ "merged lines stay two", START(1, 0, 0) MERGED(1, 0, 4, 0, "[[2,2]]") MERGED(1, 4, 8, 16, "[[2,2]]"),
	  START(1, 0, 0) MERGED(1, 0, 4, 0, "[[2,2]]") MERGED(1, 4, 8, 16, "[[2,2]]") },
	{ "undone lines are kept apart", START(1, 0, 0) STEPS(1, 0, 1, 0) STEPS(1, 1, 2, 4) STEPS(1, 2, 3, 8) STEPS(1, 3, 4, 12) START(2, 2, 8),
	  START(1, 0, 0) MERGED(1, 0, 2, 0, "[[1,2]]") MERGED(1, 2, 4, 8, "[[1,2]]") START(2, 2, 8) },
	{ "the earliest restart decides", START(1, 0, 0) STEPS(1, 0, 1, 0) STEPS(1, 1, 2, 4) START(2, 2, 8) STEPS(2, 2, 3, 8) START(3, 1, 4),
	  START(1, 0, 0) STEPS(1, 0, 1, 0) STEPS(1, 1, 2, 4) START(2, 2, 8) STEPS(2, 2, 3, 8) START(3, 1, 4) },
	{ "a skip between", START(1, 0, 0) SKIP(1, 4, 2) STEPS(1, 0, 1, 0) STEPS(1, 1, 2, 4) STEPS(1, 2, 3, 10),
	  START(1, 0, 0) SKIP(1, 4, 2) MERGED(1, 0, 3, 0, "[[1,3]]") },
	{ "a gap", START(1, 0, 0) STEPS(1, 0, 1, 0) STEPS(1, 2, 3, 8), START(1, 0, 0) STEPS(1, 0, 1, 0) STEPS(1, 2, 3, 8) },
	{ "another position", START(1, 0, 0) STEPS(1, 0, 1, 0) STEPS(1, 1, 2, 5), START(1, 0, 0) STEPS(1, 0, 1, 0) STEPS(1, 1, 2, 5) },
	{ "a batch with a hole", START(1, 0, 0) LINE(1, 0, 1, 0, "", 3) LINE(1, 1, 2, 4, "", 3), START(1, 0, 0) LINE(1, 0, 1, 0, "", 3) LINE(1, 1, 2, 4, "", 3) },
	{ "rubbish between", START(1, 0, 0) STEPS(1, 0, 1, 0) "x\n" STEPS(1, 1, 2, 4), START(1, 0, 0) STEPS(1, 0, 1, 0) "x\n" STEPS(1, 1, 2, 4) },
	{ "a dead generation's lines", START(1, 0, 0) START(2, 0, 0) STEPS(1, 0, 1, 0) STEPS(1, 1, 2, 4), START(1, 0, 0) START(2, 0, 0) STEPS(1, 0, 1, 0) STEPS(1, 1, 2, 4) },
};
/* clang-format on */

static void clear_digests(char *text)
{
	for (char *at = text; (at = strstr(at, "[[0,4,\"")); at++)
		memset(at + 7, '0', strlen(DIGEST));
}

static void lines_that_continue_each_other_become_one(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof merges / sizeof *merges; i++) {
		struct buf text = BUF_INIT;
		append(merges[i].text, strlen(merges[i].text));
		assert_true(split());
		assert_int_equal(merge(MOST), 1);
		assert_int_equal(data_ledger_slurp(dir, MOST, &text, NULL), 0);
		char *lines = strchr(buf_str(&text), '\n') + 1;
		clear_digests(lines);
		if (strcmp(lines, merges[i].merged))
			fail_msg("%s: %s", merges[i].what, lines);
		buf_fini(&text);
		file_remove_tree(dir);
		assert_int_equal(mkdir(dir, 0700), 0);
	}
}

static void merged_parts_are_one_until_it_is_long(void **state)
{
	struct history h;
	uint32_t last;
	(void)state;
	write_parts(&h, 5);
	assert_int_equal(merge(MOST), 5);
	assert_int_equal(count_parts(&last), 1);
	assert_int_equal(last, 5);
	expect_proven(&h);
	assert_int_equal(merge(MOST), 0);
	end_history(&h);
	file_remove_tree(dir);
	assert_int_equal(mkdir(dir, 0700), 0);
	write_parts(&h, 5);
	assert_int_equal(merge(0), 5);
	assert_int_equal(count_parts(&last), 5);
	expect_proven(&h);
	/* Although the start line is in the first part, the others are merged as well: only the file
	 * has its 20 lines. */
	struct buf text = BUF_INIT;
	int lines = 0;
	assert_int_equal(data_ledger_slurp(dir, MOST, &text, NULL), 0);
	for (const char *at = buf_str(&text); (at = strstr(at, "\"steps\"")); at++)
		lines++;
	assert_int_equal(lines, 5 + 20);
	buf_fini(&text);
	end_history(&h);
}

static void a_merge_that_is_stopped_or_has_no_room_changes_nothing(void **state)
{
	struct rlimit was, small;
	struct err e = ERR_INIT;
	struct history h;
	char beside[RUN_PATH + 8];
	struct ledger_merging m = { .run = dir, .most = MOST };
	(void)state;
	write_parts(&h, 2);
	snprintf(beside, sizeof beside, "%s/ledger.1.jsonl.new", dir);
	atomic_store(&m.stop, true);
	assert_int_equal(data_ledger_merge_parts(&m, &e), 0);
	assert_int_equal(m.merged, 0);
	atomic_store(&m.stop, false);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
	small = was;
	small.rlim_cur = 100;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	int rc = data_ledger_merge_parts(&m, &e);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
	assert_int_equal(rc, -1);
	assert_non_null(strstr(e.text, "ledger.1.jsonl: its lines cannot be merged"));
	assert_int_equal(count_parts(NULL), 2);
	assert_int_not_equal(access(beside, F_OK), 0);
	expect_proven(&h);
	/* What a killed merge left is written anew. */
	assert_int_equal(file_replace(beside, "rubbish", 7, NULL), 0);
	assert_int_equal(merge(MOST), 2);
	expect_proven(&h);
	end_history(&h);
}

static void a_part_that_another_process_merges_is_left_alone(void **state)
{
	struct history h;
	char path[RUN_PATH];
	(void)state;
	write_parts(&h, 2);
	segments_path(path, dir, LEDGER_NAME, 2);
	int fd = open(path, O_RDWR);
	assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
	assert_int_equal(merge(MOST), 1);
	close(fd);
	assert_int_equal(merge(MOST), 1);
	assert_int_equal(count_parts(NULL), 1);
	expect_proven(&h);
	end_history(&h);
}

static void a_file_that_a_dead_generation_still_writes_is_not_split(void **state)
{
	struct history h;
	bool locked;
	int dead, fd;
	(void)state;
	write_parts(&h, 0);
	assert_int_equal(data_ledger_open_file(dir, &dead, &locked, NULL), 0);
	assert_int_equal(data_ledger_open_file(dir, &fd, &locked, NULL), 0);
	assert_false(data_ledger_split(dir, fd));
	assert_int_equal(count_parts(NULL), 0);
	/* It still has its own lock, so the dead one cannot split either. */
	assert_false(data_ledger_split(dir, dead));
	close(dead);
	assert_true(data_ledger_split(dir, fd));
	assert_int_equal(count_parts(NULL), 1);
	/* The descriptor is the new file, and locked. */
	assert_int_equal(file_write_full(fd, "\n", 1), 0);
	assert_int_equal(data_ledger_open_file(dir, &dead, &locked, NULL), 0);
	assert_false(data_ledger_split(dir, dead));
	close(dead);
	close(fd);
	expect_proven(&h);
	end_history(&h);
}

static void a_file_of_a_newer_muster_is_refused(void **state)
{
	static const char newer[] = "{\"format\":\"muster/ledger\",\"version\":2}\n";
	struct err e = ERR_INIT;
	struct buf text = BUF_INIT;
	struct audit *a;
	struct ledger_merging m = { .run = dir, .most = MOST };
	bool locked;
	int fd;
	(void)state;
	append(newer, sizeof newer - 1);
	assert_int_equal(data_ledger_open_file(dir, &fd, &locked, &e), -1);
	assert_int_equal(e.code, ERR_UNSUPPORTED);
	assert_non_null(strstr(e.text, "ledger.jsonl: a newer muster wrote the file (version 2"));
	assert_int_equal(data_ledger_slurp(dir, MOST, &text, &e), 0);
	assert_int_equal(data_audit_open(buf_str(&text), text.len, &a, &e), -1);
	assert_int_equal(e.code, ERR_UNSUPPORTED);
	char path[RUN_PATH], part[RUN_PATH];
	segments_path(path, dir, LEDGER_NAME, 0);
	segments_path(part, dir, LEDGER_NAME, 1);
	assert_int_equal(rename(path, part), 0);
	assert_int_equal(data_ledger_merge_parts(&m, &e), -1);
	assert_int_equal(e.code, ERR_UNSUPPORTED);
	buf_fini(&text);
}

static void a_ledger_that_is_missing_or_too_large_is_an_error(void **state)
{
	struct err e = ERR_INIT;
	struct buf text = BUF_INIT;
	struct history h;
	(void)state;
	assert_int_equal(data_ledger_slurp(dir, MOST, &text, &e), -1);
	assert_int_equal(e.code, ERR_NOTFOUND);
	write_parts(&h, 2);
	assert_int_equal(data_ledger_slurp(dir, h.text.len / 2, &text, &e), -1);
	assert_int_not_equal(e.code, ERR_NOTFOUND);
	buf_fini(&text);
	end_history(&h);
}

static void *write_and_merge(void *arg)
{
	struct history *h = arg;
	for (int i = 0; i < 150; i++) {
		write_lines(h, 3);
		if (i % 3 == 0)
			split();
		if (i % 4 == 0)
			merge(i % 8 ? 3000 : MOST);
	}
	return NULL;
}

/* The audit of each moment is proven, and never loses samples. */
static void a_reader_beside_the_writer_sees_every_line_once(void **state)
{
	struct history h = { .random = 3 };
	pthread_t thread;
	int64_t samples = 0;
	(void)state;
	add_start(&h);
	write_lines(&h, 1);
	assert_int_equal(pthread_create(&thread, NULL, write_and_merge, &h), 0);
	for (bool done = false; !done;) {
		done = pthread_tryjoin_np(thread, NULL) == 0;
		struct audit *a = audit_files(NULL);
		if (a->n_findings)
			fail_msg("%s", a->findings[0]);
		assert_true(a->samples >= samples);
		samples = a->samples;
		data_audit_close(a);
	}
	expect_proven(&h);
	end_history(&h);
}

/* --- a year --- */

enum { RANKS = 1000, CHECKPOINTS_A_DAY = 144, STEPS = 600 };

static off_t size_of_files(void)
{
	struct segments s;
	struct stat st;
	char path[RUN_PATH];
	off_t sum = 0;
	assert_int_equal(segments_list(dir, LEDGER_NAME, &s, NULL), 0);
	for (int i = -1; i < s.n; i++) {
		segments_path(path, dir, LEDGER_NAME, i < 0 ? 0 : s.numbers[i]);
		sum += stat(path, &st) ? 0 : st.st_size;
	}
	segments_free(&s);
	return sum;
}

/* One checkpoint of 1,000 replicas. */
static void write_checkpoint(struct ledger_line *l, struct history *h, size_t *written)
{
	for (int i = 0; i < l->n; i++) {
		uint64_t word[2] = { draw(h, UINT64_MAX), draw(h, UINT64_MAX) };
		l->replicas[i].digest = ckpt_digest_of(word, sizeof word);
	}
	assert_int_equal(data_ledger_write_steps(&h->fresh, l, NULL), 0);
	append(buf_str(&h->fresh), h->fresh.len);
	*written += h->fresh.len;
	buf_clear(&h->fresh);
}

/* Every rank is a replica, checkpoints come every 10 minutes, a restart a day undoes two. */
static void a_year_of_1000_ranks_stays_small(void **state)
{
	int days = getenv("MUSTER_LARGE") ? 365 : 6;
	struct history h = { .random = 5, .calm = true };
	struct ledger_line l = { .global = 4 * RANKS, .n = RANKS };
	size_t written = 0, held = 0;
	off_t most = 0;
	(void)state;
	l.replicas = calloc(RANKS, sizeof *l.replicas);
	for (int i = 0; i < RANKS; i++)
		l.replicas[i] = (struct ledger_replica){ .offset = 4 * i, .share = 4 };
	for (int day = 0; day < days; day++) {
		h.step -= h.step ? 2 * STEPS : 0;
		h.position = h.step * l.global;
		add_start(&h);
		for (int i = 0; i < CHECKPOINTS_A_DAY; i++) {
			l.generation = h.generation;
			l.from = h.step;
			l.to = h.step += STEPS;
			l.first = l.from * l.global;
			held += h.fresh.len;
			write_checkpoint(&l, &h, &held);
			if (held >= 8 << 20) {
				assert_true(split());
				merge(8 << 20);
				written += held;
				held = 0;
			}
			off_t now = size_of_files();
			most = now > most ? now : most;
		}
	}
	print_message("%d days of %d ranks: %zu MiB were written, the files had at most %.1f MiB\n",
		      days, RANKS, (written + held) >> 20, (double)most / (1 << 20));
	/* Two lines of 50 kB a day, and the parts that are written and merged. */
	assert_true(most < (off_t)days * 100000 + (18 << 20));
	struct audit *a = audit_files(NULL);
	if (a->n_findings)
		fail_msg("%s", a->findings[0]);
	assert_int_equal(a->step, h.step);
	assert_int_equal(a->samples, h.step * l.global);
	assert_int_equal(a->undone, (int64_t)(days - 1) * 2 * STEPS * l.global);
	data_audit_close(a);
	assert_true(split());
	merge(8 << 20);
	off_t all = size_of_files();
	print_message("merged, the lines take %.1f MiB\n", (double)all / (1 << 20));
	assert_true(all < (off_t)days * 100000);
	free(l.replicas);
	end_history(&h);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, make_dir, remove_dir)
	const struct CMUnitTest tests[] = {
		TEST(merged_lines_prove_what_the_lines_proved),
		TEST(lines_that_continue_each_other_become_one),
		TEST(merged_parts_are_one_until_it_is_long),
		TEST(a_merge_that_is_stopped_or_has_no_room_changes_nothing),
		TEST(a_part_that_another_process_merges_is_left_alone),
		TEST(a_file_that_a_dead_generation_still_writes_is_not_split),
		TEST(a_file_of_a_newer_muster_is_refused),
		TEST(a_ledger_that_is_missing_or_too_large_is_an_error),
		TEST(a_reader_beside_the_writer_sees_every_line_once),
		TEST(a_year_of_1000_ranks_stays_small),
	};
	return cmocka_run_group_tests_name("ledger parts", tests, NULL, NULL);
}
