/*
 * Tests every operation of comm.h with every type and reduction, in place and not, over every
 * backend and every split of the ranks over hosts, from 0 bytes to 64 MiB. Each byte of every
 * result, input and guard is compared with comm_reference.
 *
 * A cell is one call (comm_forms.h). All cells of the small sizes are run. Of the larger sizes,
 * every `share`-th cell is run. Cells are numbered through all worlds, and the shares are primes,
 * so every combination of form, type, world and size is run at some time. The cell's number alone
 * determines roots, uneven counts, alignment, the kind of memory of each buffer and whether the
 * operation is started or called. A run can therefore be repeated.
 *
 * MUSTER_COMM_SWEEP=N runs N times as many of the selected cells. With N as large as the largest
 * share, all cells are run (this takes hours: make check-comm).
 */
#include "tests/conform/comm_forms.h"
#include "tests/unit/libcomm/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Under a sanitizer, one seventh of these cells is run. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { THIN = 7 };
#else
enum { THIN = 1 };
#endif

#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

/* Sizes in elements, or in bytes of the whole vector. A few elements are added, so that no size is
 * a round number. */
/* clang-format off */
static const struct size {
	size_t count, bytes;
	int share;
} sizes[] = {
	{ .count = 0, .share = 1 },          { .count = 1, .share = 1 },
	{ .count = 3, .share = 1 },          { .count = 65, .share = 1 },
	{ .count = 1027, .share = 1 },       { .count = 4099, .share = 2 },
	{ .bytes = 96 << 10, .share = 11 },  { .bytes = 1 << 20, .share = 53 },
	{ .bytes = 9 << 20, .share = 211 },  { .bytes = 64 << 20, .share = 997 },
};
/* clang-format on */

/* clang-format off */
static const struct world {
	int n;
	const char *backend, *hosts;
	int sockets; /* 0: the default */
	enum comm_integrity integrity;
} worlds[] = {
	{ 1, "shm", NULL, 0, 0 }, { 1, "tcp", NULL, 0, 0 },
	{ 2, "shm", NULL, 0, 0 }, { 2, "tcp", NULL, 0, 0 }, { 2, NULL, "ab", 0, 0 },
	{ 3, "shm", NULL, 0, 0 }, { 3, "tcp", NULL, 0, 0 }, { 3, NULL, "abb", 0, 0 }, { 3, NULL, "aba", 0, 0 },
	{ 4, "shm", NULL, 0, 0 }, { 4, "tcp", NULL, 0, 0 }, { 4, NULL, "abbb", 0, 0 }, { 4, NULL, "aabb", 0, 0 },
	{ 7, "shm", NULL, 0, 0 }, { 7, "tcp", NULL, 0, 0 }, { 7, NULL, "aaabbbb", 0, 0 }, { 7, NULL, "abcabca", 0, 0 },
	{ 8, "shm", NULL, 0, 0 }, { 8, "tcp", NULL, 0, 0 }, { 8, NULL, "abbbbbbb", 0, 0 }, { 8, NULL, "aabbbbbb", 0, 0 },
	{ 8, NULL, "aaaabbbb", 0, 0 }, { 8, NULL, "aabbccdd", 0, 0 },
	{ 2, "tcp", NULL, 3, 0 }, { 3, "tcp", NULL, 2, 0 }, { 4, NULL, "aabb", 4, 0 }, { 7, NULL, "abcabca", COMM_SOCKETS_MAX, 0 },
};
/* clang-format on */

/* Each algorithm is forced once in these worlds. Every 11th cell of one rank's world is run. */
static const struct world forced[] = {
	{ 2, "shm", NULL, 0, 0 },      { 3, NULL, "aab", 0, 0 },     { 4, "tcp", NULL, 0, 0 },
	{ 7, "shm", NULL, 0, 0 },      { 7, NULL, "abbcccc", 0, 0 }, { 8, "tcp", NULL, 0, 0 },
	{ 8, NULL, "aaaabbbb", 0, 0 },
};
enum { FORCED_SHARE = 11 };

/* Data over TCP is checked or sealed. Every 7th cell is run. */
/* clang-format off */
static const struct world protected[] = {
	{ 2, "tcp", NULL, 0, COMM_INTEGRITY_CHECKSUM }, { 2, "tcp", NULL, 0, COMM_INTEGRITY_SEAL },
	{ 3, "tcp", NULL, 2, COMM_INTEGRITY_SEAL }, { 4, NULL, "aabb", 4, COMM_INTEGRITY_CHECKSUM },
	{ 7, NULL, "abcabca", 0, COMM_INTEGRITY_SEAL }, { 8, "tcp", NULL, 0, COMM_INTEGRITY_CHECKSUM },
};
/* clang-format on */
enum { PROTECTED_SHARE = 7 };

struct tally { /* shared by the test and its ranks */
	_Atomic int worlds, cells, large;
};

static struct tally *tally;
static struct reference *references[REF_RANKS + 1];

struct run {
	struct comm *c;
	const struct reference *ref;
	struct cell_memory memory;
	size_t room;
	uint32_t world; /* its number */
	int share;      /* every share-th cell; multiplied with the size's own share */
};

/* --- Which cells --- */

static uint32_t mix(uint32_t a, uint32_t b)
{
	uint32_t x = (a + 1) * 0x9e3779b1u ^ (b + 1) * 0x85ebca77u;
	x = (x ^ x >> 15) * 0x2c1b3c6du;
	return x ^ x >> 13;
}

static int sweep(void)
{
	const char *s = getenv("MUSTER_COMM_SWEEP");
	int n = s ? atoi(s) : 1;
	return n > 0 ? n : 1;
}

static bool is_dealt(const struct run *run, const struct size *size, uint32_t number)
{
	int share = size->share * run->share * THIN / sweep();
	return share <= 1 || number % (uint32_t)share == (uint32_t)(size - sizes) % (uint32_t)share;
}

static size_t count_of(const struct size *size, const struct form *form, enum comm_type type, int n)
{
	if (!size->bytes)
		return size->count;
	return size->bytes / comm_type_size(type) / (size_t)(form->traits & FORM_BLOCKS ? n : 1) +
	       3;
}

/* --- One cell --- */

/* Memory for the largest cell so far. */
static int make_room(struct run *run, size_t room)
{
	struct err e = ERR_INIT;
	if (room <= run->room)
		return 0;
	for (int i = 0; i < 2; i++) {
		free(run->memory.local[i]);
		comm_free(run->c, run->memory.shared[i]);
		void *shared;
		RANK_CHECK(comm_alloc(run->c, room, &shared, &e) == 0, "%s", e.text);
		run->memory.shared[i] = shared;
		run->memory.local[i] = malloc(room);
		RANK_CHECK(run->memory.local[i], "no memory");
	}
	run->room = room;
	return 0;
}

static int run_cell(struct run *run, struct cell *t, uint32_t number)
{
	struct err e = ERR_INIT;
	struct comm_request *req = NULL;
	char text[256];
	uint32_t mine = mix(number, 1000 + (uint32_t)comm_rank(run->c));
	t->choice = mix(number, (uint32_t)t->count) >> 8;
	t->start = t->choice >> 12 & 1;
	/* A quarter of the cells has all buffers shared, a quarter has all private, and the others
	 * mix both. */
	t->shared[0] = t->choice >> 13 & 1 ? mine & 1 : t->choice >> 14 & 1;
	t->shared[1] = t->choice >> 13 & 1 ? mine >> 1 & 1 : t->choice >> 14 & 1;
	t->shifted = mine >> 2 & 1;
	t->null = mine >> 3 & 1;
	if (make_room(run,
		      cell_room(t->form, comm_size(run->c), t->count, comm_type_size(t->type))))
		return 1;
	cell_prepare(t, &run->memory);
	int rc = cell_call(t, &req, &e);
	if (rc == 0 && t->start)
		rc = comm_wait(req, &e);
	RANK_CHECK(rc == 0, "%s: %s", cell_text(t, text), e.text);
	if (comm_rank(run->c) == 0) {
		atomic_fetch_add(&tally->cells, 1);
		atomic_fetch_add(&tally->large, t->count * comm_type_size(t->type) >= 1 << 20);
	}
	return cell_check(t);
}

/* --- The cells of a world --- */

static int redops_of(const struct form *form)
{
	return form->traits & FORM_REDUCES ? REF_REDOPS : 1;
}

static int places_of(const struct form *form)
{
	return form->traits & FORM_IN_PLACE ? 2 : 1;
}

/* Runs the selected cells of one form and size. */
static int run_form(struct run *run, const struct form *form, const struct size *size,
		    uint32_t *number)
{
	struct cell t = { .c = run->c, .ref = run->ref, .form = form };
	for (int type = 0; type < REF_TYPES; type++)
		for (int op = 0; op < redops_of(form); op++)
			for (int place = 0; place < places_of(form); place++) {
				if (!is_dealt(run, size, ++*number))
					continue;
				t.type = (enum comm_type)type;
				t.op = (enum comm_op)op;
				t.in_place = place;
				t.count = count_of(size, form, t.type, comm_size(run->c));
				if (run_cell(run, &t, *number))
					return 1;
			}
	return 0;
}

static int conform(struct comm *world, void *arg)
{
	struct run run = *(const struct run *)arg;
	uint32_t number = run.world * 5000;
	run.c = world;
	for (int s = 0; s < COUNT(sizes); s++)
		for (int f = 0; f < comm_form_count; f++) {
			alarm(PATIENCE_S); /* for these cells, not for all */
			if (run_form(&run, &comm_forms[f], &sizes[s], &number))
				return 1;
		}
	for (int i = 0; i < 2; i++) {
		free(run.memory.local[i]);
		comm_free(world, run.memory.shared[i]);
	}
	return 0;
}

/* --- Worlds --- */

static void run_world(const struct world *w, const char *algorithm, int share)
{
	struct run run = { .world = (uint32_t)atomic_fetch_add(&tally->worlds, 1), .share = share };
	if (!references[w->n])
		references[w->n] = reference_open(w->n);
	assert_non_null(references[w->n]);
	run.ref = references[w->n];
	struct ranks r = { .n = w->n,
			   .backend = w->backend,
			   .hosts = w->hosts,
			   .sockets = w->sockets,
			   .integrity = w->integrity,
			   .algorithm = algorithm,
			   .timeout_s = PATIENT_WAIT_S,
			   .fn = conform,
			   .arg = &run };
	if (ranks_run(&r))
		fail_msg("%d ranks, backend %s, hosts %s, algorithm %s", w->n,
			 w->backend ? w->backend : "auto", w->hosts ? w->hosts : "one",
			 algorithm ? algorithm : "by the table");
}

static void worlds_of(int n)
{
	for (int i = 0; i < COUNT(worlds); i++)
		if (worlds[i].n == n)
			run_world(&worlds[i], NULL, 1);
}

static void every_operation_is_right_with_1_rank(void **state)
{
	(void)state;
	worlds_of(1);
}
static void every_operation_is_right_with_2_ranks(void **state)
{
	(void)state;
	worlds_of(2);
}
static void every_operation_is_right_with_3_ranks(void **state)
{
	(void)state;
	worlds_of(3);
}
static void every_operation_is_right_with_4_ranks(void **state)
{
	(void)state;
	worlds_of(4);
}
static void every_operation_is_right_with_7_ranks(void **state)
{
	(void)state;
	worlds_of(7);
}
static void every_operation_is_right_with_8_ranks(void **state)
{
	(void)state;
	worlds_of(8);
}

static void every_algorithm_is_right_where_it_is_forced(void **state)
{
	(void)state;
	for (const char *const *name = comm_algorithms(); *name; name++)
		for (int i = 0; i < COUNT(forced); i++)
			run_world(&forced[i], *name, FORCED_SHARE);
}

static void checked_and_sealed_connections_give_right_results(void **state)
{
	(void)state;
	for (int i = 0; i < COUNT(protected); i++)
		run_world(&protected[i], NULL, PROTECTED_SHARE);
}

static int report(void **state)
{
	(void)state;
	printf("# figure: %d cells in %d worlds, %d of them of 1 MiB and more a buffer\n",
	       atomic_load(&tally->cells), atomic_load(&tally->worlds), atomic_load(&tally->large));
	for (int n = 0; n <= REF_RANKS; n++)
		reference_close(references[n]);
	return munmap(tally, sizeof *tally);
}

static int prepare(void **state)
{
	(void)state;
	tally = ranks_shared(sizeof *tally);
	return tally ? 0 : -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_operation_is_right_with_1_rank),
		cmocka_unit_test(every_operation_is_right_with_2_ranks),
		cmocka_unit_test(every_operation_is_right_with_3_ranks),
		cmocka_unit_test(every_operation_is_right_with_4_ranks),
		cmocka_unit_test(every_operation_is_right_with_7_ranks),
		cmocka_unit_test(every_operation_is_right_with_8_ranks),
		cmocka_unit_test(every_algorithm_is_right_where_it_is_forced),
		cmocka_unit_test(checked_and_sealed_connections_give_right_results),
	};
	return cmocka_run_group_tests_name("comm conforms", tests, prepare, report);
}
