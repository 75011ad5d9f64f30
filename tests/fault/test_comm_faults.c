/*
 * Tests the effects on the other ranks if a rank ends in the middle of any operation.
 *
 * A trial is a world whose ranks run one form of comm_forms.h repeatedly until the victim's fault:
 * it is killed, is stopped, aborts from another thread, leaves, or makes no more calls. The moment
 * is random: after some operations and some microseconds of the next one. Then each survivor must
 * get an error that states its operation and the missing rank. Its earlier results must be correct
 * to the byte. Nothing of the world may be left in its process. With the other survivors, it opens
 * a new world at once.
 *
 * MUSTER_COMM_SEED=N sets another random seed.
 */
#include "tests/conform/comm_forms.h"
#include "tests/unit/libcomm/ranks.h"

#include "base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

enum { RANKS = 4, LARGEST = 200003, LONG_S = PATIENT_WAIT_S };
enum { SPLITS = -1 }; /* instead of a form: groups are split off, used and closed */

enum fault { KILLED, STOPPED, ABORTS, LEAVES, CALLS_NOTHING };

struct trial {             /* shared by the test and its ranks */
	int backend, form; /* of comm_forms, or SPLITS */
	enum fault fault;
	int victim, before; /* operations that the victim ends before its fault */
	int64_t delay_ns;   /* and the time that it spends in the next one */
	size_t count;
	uint32_t random;
	struct ranks first, second; /* the first world, and the survivors' world */
	_Atomic int64_t fault_ns;
	_Atomic int64_t late_ns[RANKS], reopen_ns[RANKS];
	_Atomic int named, timed_out, aborted, over;
	atomic_bool failed; /* a rank failed a check */
};

static struct reference *references[RANKS + 1];
static const char reason[] = "the supervisor says stop";

static uint32_t mix(uint32_t a, uint32_t b)
{
	uint32_t x = (a + 1) * 0x9e3779b1u ^ (b + 1) * 0x85ebca77u;
	x = (x ^ x >> 15) * 0x2c1b3c6du;
	return x ^ x >> 13;
}

/* --- The resources of a process --- */

struct belongings {
	int descriptors, threads, mappings; /* mappings: shared ones */
};

static int count_entries(const char *path)
{
	int n = 0;
	DIR *d = opendir(path);
	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

static int shared_mappings(void)
{
	char line[512], access[8];
	int n = 0;
	FILE *f = fopen("/proc/self/maps", "r");
	while (f && fgets(line, sizeof line, f))
		n += sscanf(line, "%*s %7s", access) == 1 && access[3] == 's';
	if (f)
		fclose(f);
	return n;
}

static struct belongings take_stock(void)
{
	return (struct belongings){ count_entries("/proc/self/fd"),
				    count_entries("/proc/self/task"), shared_mappings() };
}

/* A joined thread may still be listed for a moment. */
static int compare_stock(struct belongings before, const char *when)
{
	struct belongings now = take_stock();
	for (int i = 0; i < 5000 && now.threads > before.threads; i++) {
		usleep(1000);
		now = take_stock();
	}
	RANK_CHECK(now.descriptors == before.descriptors, "%s: %d descriptors where %d were", when,
		   now.descriptors, before.descriptors);
	RANK_CHECK(now.threads == before.threads, "%s: %d threads where %d were", when, now.threads,
		   before.threads);
	RANK_CHECK(now.mappings == before.mappings, "%s: %d shared mappings where %d were", when,
		   now.mappings, before.mappings);
	return 0;
}

/* --- The victim --- */

struct striker {
	struct trial *t;
	struct comm *world;
	pthread_t id;
};

static void *carry_out_fault(void *arg)
{
	struct striker *s = arg;
	int64_t until = clock_ns() + s->t->delay_ns;
	while (clock_ns() < until)
		continue;
	atomic_store(&s->t->fault_ns, clock_ns());
	if (s->t->fault == ABORTS)
		comm_abort(s->world, reason);
	else
		kill(getpid(), s->t->fault == KILLED ? SIGKILL : SIGSTOP);
	return NULL;
}

/* Runs when the time of the fault has come. Returns 1 if the rank does nothing more. */
static int meet_fault(struct striker *s)
{
	struct trial *t = s->t;
	if (t->fault == LEAVES || t->fault == CALLS_NOTHING) {
		atomic_store(&t->fault_ns, clock_ns());
		while (t->fault == CALLS_NOTHING && atomic_load(&t->over) < RANKS - 1 &&
		       !atomic_load(&t->failed))
			usleep(1000);
		return 1;
	}
	pthread_create(&s->id, NULL, carry_out_fault, s);
	return 0;
}

/* --- Operations until one fails --- */

static int memory_open(struct comm *world, struct cell_memory *m, struct err *e)
{
	size_t room = cell_room(&comm_forms[2], RANKS, LARGEST / RANKS, 8);
	for (int i = 0; i < 2; i++) {
		void *shared;
		m->local[i] = malloc(room);
		if (!m->local[i] || comm_alloc(world, room, &shared, e) < 0)
			return -1;
		m->shared[i] = shared;
	}
	return 0;
}

static void memory_close(struct cell_memory *m) /* the shared memory goes with the world */
{
	for (int i = 0; i < 2; i++)
		free(m->local[i]);
}

static int split_once(struct comm *world, struct err *e)
{
	struct comm *half;
	int me = comm_rank(world), one = 1, sum = 0;
	if (comm_split(world, me % 2, 0, "half", &half, e) < 0)
		return -1;
	int rc = comm_all_reduce(half, &one, &sum, 1, COMM_I32, COMM_SUM, e);
	comm_close(half);
	return rc;
}

/* Runs the i-th operation. 0: done; -1: failed as it may; 1: wrong. */
static int run_operation(struct comm *world, const struct trial *t, int i,
			 const struct cell_memory *memory, struct err *e)
{
	struct comm_request *req = NULL;
	if (t->form == SPLITS)
		return split_once(world, e);
	uint32_t x = mix(t->random, (uint32_t)i), mine = mix(x, (uint32_t)comm_rank(world));
	const struct form *form = &comm_forms[t->form];
	struct cell cell = {
		.c = world,
		.ref = references[comm_size(world)],
		.form = form,
		.type = (enum comm_type)(x % REF_TYPES),
		.op = (enum comm_op)(x / 8 % REF_REDOPS),
		.choice = x >> 8,
		.in_place = x >> 6 & 1,
		.start = x >> 7 & 1,
		.count = form->traits & FORM_BLOCKS ? t->count / RANKS : t->count,
		.shared = { mine & 1, mine >> 1 & 1 },
		.shifted = mine >> 2 & 1,
	};
	cell_prepare(&cell, memory);
	if (cell_call(&cell, &req, e) < 0 || (cell.start && comm_wait(req, e) < 0))
		return -1;
	return cell_check(&cell);
}

/* The name of the form's operation in errors. */
static const char *operation_name(int form)
{
	static const char *const cause[] = { "all_reduce", "reduce_scatter", "reduce",
					     "broadcast",  "all_gather",     "gather",
					     "scatter",    "all_to_all",     "barrier" };
	for (int i = 0; form != SPLITS && i < COUNT(cause); i++)
		if (!strncmp(comm_forms[form].name, cause[i], strlen(cause[i])))
			return cause[i];
	return form == SPLITS ? "of group" : "send/recv";
}

static int check_error(struct comm *world, struct trial *t, const struct err *e)
{
	struct err again = ERR_INIT;
	char who[32];
	bool victim = comm_rank(world) == t->victim;
	atomic_store(&t->late_ns[comm_rank(world)], clock_ns() - atomic_load(&t->fault_ns));
	RANK_CHECK(e->code == ERR_PEER || (e->code == ERR_ABORTED && victim) ||
			   (e->code == ERR_TIMEOUT &&
			    (t->fault == STOPPED || t->fault == CALLS_NOTHING)),
		   "%s: %s", err_word(e->code), e->text);
	/* The rank may have learned of an abort between two operations. */
	bool within = t->fault != ABORTS;
	RANK_CHECK(!within || strstr(e->text, operation_name(t->form)),
		   "the operation is not named: %s", e->text);
	RANK_CHECK(!within || (strstr(e->text, "of group ") &&
			       (t->form == SPLITS || strstr(e->text, " number "))),
		   "the operation's group and number are not named: %s", e->text);
	snprintf(who, sizeof who, "(world rank %d,", t->victim);
	atomic_fetch_add(&t->named, strstr(e->text, who) != NULL);
	atomic_fetch_add(&t->timed_out, e->code == ERR_TIMEOUT && strstr(e->text, who) &&
						strstr(e->text, "did not join within"));
	atomic_fetch_add(&t->aborted, strstr(e->text, reason) != NULL);
	RANK_CHECK(comm_barrier(world, &again) < 0 && again.code == e->code, "a later call: %s",
		   again.text);
	return 0;
}

static int until_the_fault(struct comm *world, struct trial *t)
{
	struct striker striker = { .t = t, .world = world };
	struct cell_memory memory = { { NULL, NULL }, { NULL, NULL } };
	struct err e = ERR_INIT;
	int rc = memory_open(world, &memory, &e);
	bool gone = false, victim = comm_rank(world) == t->victim;
	for (int i = 0; rc == 0 && !gone; i++) {
		gone = victim && i == t->before && meet_fault(&striker);
		if (!gone)
			rc = run_operation(world, t, i, &memory, &e);
	}
	if (striker.id)
		pthread_join(striker.id, NULL);
	memory_close(&memory);
	if (gone)
		return 0;
	return rc > 0 ? 1 : check_error(world, t, &e);
}

/* --- A rank --- */

static int start_again(struct trial *t, int rank)
{
	struct comm *world;
	struct err e = ERR_INIT;
	int one = 1, sum = 0, me = rank - (rank > t->victim);
	int64_t begin = clock_ns();
	RANK_CHECK(ranks_open(&t->second, me, &world, &e) == 0, "the survivors' world: %s", e.text);
	RANK_CHECK(comm_all_reduce(world, &one, &sum, 1, COMM_I32, COMM_SUM, &e) == 0,
		   "the survivors: %s", e.text);
	RANK_CHECK(sum == RANKS - 1, "the survivors' sum is %d", sum);
	comm_close(world);
	atomic_store(&t->reopen_ns[rank], clock_ns() - begin);
	return 0;
}

static void *report_thread_id(void *arg)
{
	*(long *)arg = syscall(SYS_gettid);
	return NULL;
}

/* ThreadSanitizer starts a thread of its own with the first one. The kernel may list a joined
 * thread for a moment; this returns when it is gone, so that nobody counts it. */
static void start_a_thread(void)
{
	pthread_t thread;
	long id = 0;
	char path[64];
	if (pthread_create(&thread, NULL, report_thread_id, &id) == 0)
		pthread_join(thread, NULL);
	snprintf(path, sizeof path, "/proc/self/task/%ld", id);
	while (id && access(path, F_OK) == 0)
		usleep(100);
}

static int run_rank(struct trial *t, int rank)
{
	struct comm *world;
	struct err e = ERR_INIT;
	alarm(PATIENCE_S);
	start_a_thread();
	struct belongings stock = take_stock();
	RANK_CHECK(ranks_open(&t->first, rank, &world, &e) == 0, "%s", e.text);
	int rc = until_the_fault(world, t);
	comm_close(world);
	atomic_fetch_add(&t->over, 1);
	if (rc || compare_stock(stock, "after the world"))
		return 1;
	/* A rank that leaves stays alive: the others must rely on its message, not on its death. */
	while (rank == t->victim && atomic_load(&t->over) < RANKS && !atomic_load(&t->failed))
		usleep(1000);
	if (rank == t->victim)
		return 0;
	if (start_again(t, rank))
		return 1;
	return compare_stock(stock, "after the survivors' world");
}

/* A rank that fails a check ends the waits of the other ranks. */
static int run_and_report(struct trial *t, int rank)
{
	int rc = run_rank(t, rank);
	if (rc) {
		atomic_store(&t->failed, true);
		ranks_fail(t->first.board, rank);
		ranks_fail(t->second.board, rank - (rank > t->victim));
	}
	return rc;
}

/* --- A trial --- */

static const char *const hosts[] = { NULL, NULL, "aabb" };
static const char *const backends[] = { "shm", "tcp", NULL };
static const char *const backend_names[] = { "shm", "tcp", "hybrid" };
enum { BACKENDS = COUNT(hosts) };

static uint32_t seed(void)
{
	const char *s = getenv("MUSTER_COMM_SEED");
	return s ? (uint32_t)strtoul(s, NULL, 0) : 1;
}

static void choose_trial(struct trial *t, int backend, int form, enum fault fault, uint32_t number,
			 double timeout_s)
{
	static const size_t counts[] = { 5, 3001, 40009, LARGEST };
	uint32_t x = mix(seed(), number);
	*t = (struct trial){
		.backend = backend,
		.form = form,
		.fault = fault,
		.victim = (int)(x % RANKS),
		.before = (int)(x / 8 % 6),
		.random = x,
		/* up to 4 ms, of all magnitudes */
		.delay_ns = (int64_t)(mix(x, 3) % (1u << (mix(x, 4) % 22))),
		.count = counts[x / 64 % COUNT(counts)],
	};
	t->first = (struct ranks){ .n = RANKS,
				   .backend = backends[backend],
				   .hosts = hosts[backend],
				   .timeout_s = timeout_s };
	t->second = t->first;
	t->second.n = RANKS - 1;
	t->second.timeout_s = LONG_S;
	t->first.board = ranks_shared(sizeof *t->first.board);
	t->second.board = ranks_shared(sizeof *t->second.board);
	assert_non_null(t->first.board);
	assert_non_null(t->second.board);
}

static void run_trial(struct trial *t)
{
	int status, bad = 0;
	pid_t pid[RANKS];
	fflush(NULL);
	for (int i = 0; i < RANKS; i++) {
		pid[i] = fork();
		if (pid[i] == 0)
			_exit(run_and_report(t, i));
	}
	for (int i = 0; i < RANKS; i++)
		if (i != t->victim)
			bad += waitpid(pid[i], &status, 0) != pid[i] || status;
	if (t->fault == STOPPED)
		kill(pid[t->victim], SIGKILL);
	bool by_signal = t->fault == KILLED || t->fault == STOPPED;
	bad += waitpid(pid[t->victim], &status, 0) != pid[t->victim] ||
	       status != (by_signal ? SIGKILL : 0);
	munmap(t->first.board, sizeof *t->first.board);
	munmap(t->second.board, sizeof *t->second.board);
	if (bad)
		fail_msg("%s over %s, fault %d of rank %d after %d operations and %lld ns, %zu "
			 "elements, random number %u",
			 t->form == SPLITS ? "split" : comm_forms[t->form].name,
			 backend_names[t->backend], t->fault, t->victim, t->before,
			 (long long)t->delay_ns, t->count, t->random);
}

static struct trial *trial_new(void)
{
	struct trial *t = ranks_shared(sizeof *t);
	assert_non_null(t);
	return t;
}

/* --- Kills --- */

struct times {
	int64_t ns[1024];
	int n;
};

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

static void times_add(struct times *times, const _Atomic int64_t *ns, int victim)
{
	for (int r = 0; r < RANKS; r++)
		if (r != victim && times->n < COUNT(times->ns))
			times->ns[times->n++] = atomic_load(&ns[r]);
}

static double times_ms(struct times *times, double quantile)
{
	qsort(times->ns, (size_t)times->n, sizeof *times->ns, by_value);
	return (double)times->ns[(int)(quantile * (times->n - 1))] * 1e-6;
}

static void a_killed_rank_ends_every_operation(void **state)
{
	(void)state;
	int rounds = getenv("MUSTER_LARGE") ? 4 : 1; /* make check-all sets it */
	static struct times late[BACKENDS], reopen;
	struct trial *t = trial_new();
	int kills = 0;
	for (int round = 0; round < rounds; round++)
		for (int form = SPLITS; form < comm_form_count; form++)
			for (int b = 0; b < BACKENDS; b++, kills++) {
				choose_trial(t, b, form, KILLED, (uint32_t)kills, LONG_S);
				run_trial(t);
				/* On one host, every rank knows the victim. Otherwise, a rank may
				 * only know who gave up because of it. */
				assert_in_range(atomic_load(&t->named), b == 0 ? RANKS - 1 : 1,
						RANKS);
				times_add(&late[b], t->late_ns, t->victim);
				times_add(&reopen, t->reopen_ns, t->victim);
			}
	for (int b = 0; b < BACKENDS; b++) {
		printf("# figure: %s: after a kill the others have their error in %.2f ms "
		       "(median), %.2f (99 of 100), %.2f "
		       "(worst)\n",
		       backend_names[b], times_ms(&late[b], 0.5), times_ms(&late[b], 0.99),
		       times_ms(&late[b], 1));
		assert_true(times_ms(&late[b], 1) < LONG_S * 1e3 / 3); /* notified, not timed out */
	}
	printf("# figure: %d kills; the survivors' new world opens, sums and closes in %.2f ms "
	       "(median)\n",
	       kills, times_ms(&reopen, 0.5));
	munmap(t, sizeof *t);
}

/* --- Others --- */

/* Runs each form once, over the backends in turn. by: only every by-th form is run. */
static void each_form(enum fault fault, double timeout_s, int by,
		      void (*check)(const struct trial *t, int backend))
{
	struct trial *t = trial_new();
	for (int form = SPLITS, b = 0; form < comm_form_count; form += by, b = (b + 1) % BACKENDS) {
		choose_trial(t, b, form, fault, 1000u * (uint32_t)fault + (uint32_t)form,
			     timeout_s);
		run_trial(t);
		check(t, b);
	}
	munmap(t, sizeof *t);
}

static void is_named_as_late(const struct trial *t, int backend)
{
	(void)backend;
	assert_true(atomic_load(&t->timed_out) >= 1);
}

static void a_stopped_rank_is_named_after_the_time_out(void **state)
{
	(void)state;
	each_form(STOPPED, 0.7, 2, is_named_as_late);
}

static void a_rank_that_calls_nothing_is_named(void **state)
{
	(void)state;
	each_form(CALLS_NOTHING, 0.7, 3, is_named_as_late);
}

static void is_heard(const struct trial *t, int backend)
{
	/* The rank that aborts knows the reason. On one host, the others know it too. */
	assert_in_range(atomic_load(&t->aborted), backend == 0 ? 2 : 1, RANKS);
}

static void an_abort_from_another_thread_ends_every_operation(void **state)
{
	(void)state;
	each_form(ABORTS, LONG_S, 1, is_heard);
	each_form(ABORTS, 0, 1, is_heard); /* no time-out: only the abort ends it */
}

static void is_missed(const struct trial *t, int backend)
{
	assert_in_range(atomic_load(&t->named), backend == 0 ? RANKS - 1 : 1, RANKS - 1);
}

static void a_rank_that_leaves_is_missed(void **state)
{
	(void)state;
	each_form(LEAVES, LONG_S, 1, is_missed);
}

static int prepare(void **state)
{
	(void)state;
	for (int n = 1; n <= RANKS; n++)
		if (!(references[n] = reference_open(n)))
			return -1;
	return 0;
}

static int finish(void **state)
{
	(void)state;
	for (int n = 1; n <= RANKS; n++)
		reference_close(references[n]);
	/* no process is left */
	return waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD ? 0 : -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_killed_rank_ends_every_operation),
		cmocka_unit_test(a_stopped_rank_is_named_after_the_time_out),
		cmocka_unit_test(a_rank_that_calls_nothing_is_named),
		cmocka_unit_test(an_abort_from_another_thread_ends_every_operation),
		cmocka_unit_test(a_rank_that_leaves_is_missed),
	};
	return cmocka_run_group_tests_name("comm faults in every operation", tests, prepare,
					   finish);
}
