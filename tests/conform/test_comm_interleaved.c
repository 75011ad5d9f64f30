/*
 * Operations of overlapping groups run at the same time, in a different order on each rank. Each
 * group's operations are the same on all its ranks, as comm.h requires. But each rank decides at
 * random when it starts, tests and waits for which operation. Every byte is checked as in
 * test_comm.c.
 *
 * MUSTER_COMM_SEED=N sets another random seed.
 */
#include "tests/conform/comm_forms.h"
#include "tests/unit/libcomm/ranks.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { OPS = 24 };
#else
enum { OPS = 156 };
#endif
enum { OPEN = 6, LARGEST = 9001 }; /* requests of a group at a time (a divisor of OPS); elements */

/* The groups, and their ranks. A rank without a color is in no group. */
enum parts { WORLD, BACKWARDS, ROWS, COLUMNS, PAIRS, NEIGHBOURS, ALL_BUT_ONE, PARTS };

static int color_of(enum parts part, int rank)
{
	switch (part) {
	case ROWS:
		return rank / 4;
	case COLUMNS:
		return rank % 3;
	case PAIRS:
		return rank / 2;
	case NEIGHBOURS:
		return (rank + 1) / 2;
	case ALL_BUT_ONE:
		return rank == 1 ? -1 : 0;
	default:
		return 0;
	}
}

struct slot { /* one operation under way */
	struct cell cell;
	struct cell_memory memory;
	struct comm_request *req; /* NULL: free */
};

struct part {
	struct comm *c; /* NULL: the rank is not in the group */
	struct slot slot[OPEN];
	uint32_t lead; /* determines its operations; equal on its ranks */
	int started, open;
};

struct tally { /* shared by the test and its ranks */
	_Atomic int operations;
};

static struct tally *tally;
static struct reference *references[REF_RANKS + 1];

static uint32_t mix(uint32_t a, uint32_t b)
{
	uint32_t x = (a + 1) * 0x9e3779b1u ^ (b + 1) * 0x85ebca77u;
	x = (x ^ x >> 15) * 0x2c1b3c6du;
	return x ^ x >> 13;
}

static uint32_t draw_random(uint32_t *random)
{
	*random += 0x9e3779b9u;
	return mix(*random, 77);
}

/* --- One operation --- */

static size_t some_count(uint32_t x)
{
	static const size_t most[] = { 1, 2, 40, 300, 300, 2500, LARGEST };
	return (x >> 4) % most[x % COUNT(most)];
}

/* Chooses the i-th operation of a group. Each rank chooses its own kind of memory. */
static void choose_cell(struct part *p, int i, uint32_t *random, struct cell *t)
{
	uint32_t x = mix(p->lead, (uint32_t)i), mine = draw_random(random);
	*t = (struct cell){
		.c = p->c,
		.ref = references[comm_size(p->c)],
		.form = &comm_forms[x % (uint32_t)comm_form_count],
		.type = (enum comm_type)((x >> 6) % REF_TYPES),
		.op = (enum comm_op)((x >> 11) % REF_REDOPS),
		.count = some_count(mix(x, 5)),
		.choice = mix(x, 9) >> 8,
		.in_place = x >> 20 & 1,
		.start = true,
		.shared = { mine & 1, mine >> 1 & 1 },
		.shifted = mine >> 2 & 1,
		.null = mine >> 3 & 1,
	};
}

static int start_next(struct part *p, uint32_t *random)
{
	struct err e = ERR_INIT;
	char text[256];
	struct slot *s = p->slot;
	while (s->req)
		s++;
	choose_cell(p, p->started, random, &s->cell);
	cell_prepare(&s->cell, &s->memory);
	RANK_CHECK(cell_call(&s->cell, &s->req, &e) == 0, "%s: %s", cell_text(&s->cell, text),
		   e.text);
	RANK_CHECK(s->req, "%s: no request", cell_text(&s->cell, text));
	p->started++;
	p->open++;
	return 0;
}

/* Finishes any operation under way, not necessarily the oldest. patient: also if it has to wait. */
static int finish_one(struct part *p, bool patient, uint32_t *random)
{
	struct err e = ERR_INIT;
	char text[256];
	int i = (int)(draw_random(random) % OPEN);
	while (!p->slot[i].req)
		i = (i + 1) % OPEN;
	struct slot *s = &p->slot[i];
	for (uint32_t looks = draw_random(random) % 4; !comm_test(s->req) && (looks || !patient);
	     looks--) {
		if (!looks)
			return 0;
		sched_yield();
	}
	RANK_CHECK(comm_wait(s->req, &e) == 0, "%s: %s", cell_text(&s->cell, text), e.text);
	s->req = NULL;
	p->open--;
	return cell_check(&s->cell);
}

/* --- A rank --- */

static int part_open(struct part *p, enum parts part, struct comm *world, uint32_t seed)
{
	static const char *const names[] = { "world", "backwards",  "rows",   "columns",
					     "pairs", "neighbours", "but one" };
	struct err e = ERR_INIT;
	int rank = comm_rank(world), color = color_of(part, rank);
	*p = (struct part){ .lead = mix(mix(seed, part), (uint32_t)color) };
	RANK_CHECK(comm_split(world, color, part == BACKWARDS ? -rank : 0, names[part], &p->c,
			      &e) == 0,
		   "%s", e.text);
	for (int i = 0; p->c && i < 2 * OPEN; i++) {
		size_t room = cell_room(&comm_forms[2], comm_size(p->c), LARGEST, 8);
		void *shared;
		RANK_CHECK(comm_alloc(world, room, &shared, &e) == 0, "%s", e.text);
		p->slot[i / 2].memory.shared[i % 2] = shared;
		p->slot[i / 2].memory.local[i % 2] = malloc(room);
		RANK_CHECK(p->slot[i / 2].memory.local[i % 2], "no memory");
	}
	return 0;
}

static void part_close(struct part *p)
{
	for (int i = 0; p->c && i < 2 * OPEN; i++) {
		comm_free(p->c, p->slot[i / 2].memory.shared[i % 2]);
		free(p->slot[i / 2].memory.local[i % 2]);
	}
	comm_close(p->c);
}

static int parts_open(struct part *parts, struct comm *world, uint32_t seed)
{
	for (int i = 0; i < PARTS; i++)
		if (part_open(&parts[i], (enum parts)i, world, seed))
			return 1;
	return 0;
}

static void count_and_close(struct part *parts)
{
	for (int i = 0; i < PARTS; i++) {
		atomic_fetch_add(&tally->operations, parts[i].started);
		part_close(&parts[i]);
	}
}

static int open_operations(const struct part *parts)
{
	int open = 0;
	for (int i = 0; i < PARTS; i++)
		open += parts[i].open;
	return open;
}

/* Suppose that a rank waits for one operation before another rank's thread has started it, while
 * that thread waits for one that this thread has not started. That would be an error of this test.
 * Within a round, nobody therefore waits until all operations are started. */
static int one_round(struct part *parts, int until, uint32_t *random)
{
	int left = 0;
	for (int i = 0; i < PARTS; i++)
		left += parts[i].c ? until - parts[i].started : 0;
	while (left || open_operations(parts)) {
		struct part *p = &parts[draw_random(random) % PARTS];
		bool start = p->c && p->started < until && draw_random(random) % 4;
		if (start ? start_next(p, random) : p->open && finish_one(p, !left, random))
			return 1;
		left -= start;
	}
	return 0;
}

/* One thread alternates between the groups. */
static int one_thread(struct comm *world, void *arg)
{
	uint32_t seed = *(const uint32_t *)arg, random = mix(seed, (uint32_t)comm_rank(world));
	struct part *parts = calloc(PARTS, sizeof *parts);
	RANK_CHECK(parts, "no memory");
	if (parts_open(parts, world, seed))
		return 1;
	for (int until = OPEN; until <= OPS; until += OPEN)
		if (one_round(parts, until, &random))
			return 1;
	count_and_close(parts);
	free(parts);
	return 0;
}

struct thread {
	pthread_t id;
	struct part *part;
	uint32_t random;
	bool blocking;
	int rc;
};

/* Calls a group's operations in order, without starting any. */
static int call_all(struct part *p, uint32_t *random)
{
	struct err e = ERR_INIT;
	char text[256];
	struct slot *s = p->slot;
	for (; p->started < OPS; p->started++) {
		choose_cell(p, p->started, random, &s->cell);
		s->cell.start = false;
		cell_prepare(&s->cell, &s->memory);
		RANK_CHECK(cell_call(&s->cell, NULL, &e) == 0, "%s: %s", cell_text(&s->cell, text),
			   e.text);
		if (cell_check(&s->cell))
			return 1;
	}
	return 0;
}

/* Starts a group's operations, several at a time. */
static int start_all(struct part *p, uint32_t *random)
{
	int rc = 0;
	while (rc == 0 && (p->started < OPS || p->open)) {
		bool start = p->started < OPS && p->open < OPEN &&
			     (!p->open || draw_random(random) % 2);
		rc = start ? start_next(p, random) : finish_one(p, true, random);
	}
	return rc;
}

static void *thread_main(void *arg)
{
	struct thread *t = arg;
	if (t->part->c)
		t->rc = (t->blocking ? call_all : start_all)(t->part, &t->random);
	return NULL;
}

/* Runs one thread per group. Some threads call and some start operations. */
static int many_threads(struct comm *world, void *arg)
{
	uint32_t seed = *(const uint32_t *)arg;
	struct part *parts = calloc(PARTS, sizeof *parts);
	struct thread threads[PARTS];
	RANK_CHECK(parts, "no memory");
	if (parts_open(parts, world, seed))
		return 1;
	for (int i = 0; i < PARTS; i++) {
		threads[i] = (struct thread){
			.part = &parts[i],
			.blocking = mix(seed, (uint32_t)i) & 1,
			.random = mix(seed, (uint32_t)(100 * comm_rank(world) + i))
		};
		RANK_CHECK(!pthread_create(&threads[i].id, NULL, thread_main, &threads[i]),
			   "no thread");
	}
	int bad = 0;
	for (int i = 0; i < PARTS; i++) {
		pthread_join(threads[i].id, NULL);
		bad |= threads[i].rc;
	}
	if (!bad)
		count_and_close(parts);
	free(parts);
	return bad;
}

/* --- Worlds --- */

static const struct ranks worlds[] = {
	{ .n = 4, .backend = "shm" }, { .n = 4, .backend = "tcp" },    { .n = 5, .hosts = "abbba" },
	{ .n = 8, .backend = "shm" }, { .n = 8, .hosts = "aaaabbbb" },
};

static void run_worlds(int (*fn)(struct comm *world, void *arg))
{
	const char *given = getenv("MUSTER_COMM_SEED");
	for (int i = 0; i < COUNT(worlds); i++) {
		uint32_t seed = (given ? (uint32_t)strtoul(given, NULL, 0) : 1) + (uint32_t)i;
		struct ranks r = worlds[i];
		r.timeout_s = PATIENT_WAIT_S;
		r.fn = fn;
		r.arg = &seed;
		if (ranks_run(&r))
			fail_msg("%d ranks, backend %s, hosts %s, seed %u", r.n,
				 r.backend ? r.backend : "auto", r.hosts ? r.hosts : "one", seed);
	}
}

static void operations_started_in_any_order(void **state)
{
	(void)state;
	run_worlds(one_thread);
}

static void threads_on_groups_of_their_own(void **state)
{
	(void)state;
	run_worlds(many_threads);
}

static int prepare(void **state)
{
	(void)state;
	tally = ranks_shared(sizeof *tally);
	for (int n = 1; n <= REF_RANKS; n++) {
		references[n] = reference_open(n);
		if (!references[n])
			return -1;
	}
	return tally ? 0 : -1;
}

static int report(void **state)
{
	(void)state;
	printf("# figure: %d operations of overlapping groups\n", atomic_load(&tally->operations));
	for (int n = 1; n <= REF_RANKS; n++)
		reference_close(references[n]);
	return munmap(tally, sizeof *tally);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(operations_started_in_any_order),
		cmocka_unit_test(threads_on_groups_of_their_own),
	};
	return cmocka_run_group_tests_name("comm interleaved", tests, prepare, report);
}
