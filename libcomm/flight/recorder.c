#include "libcomm/flight/recorder.h"

#include "base/clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

/* SHORT_TICKS: below a microsecond or two, on any processor */
enum { STATE_BITS = 3, TRIES = 1000, SHORT_TICKS = 2000 };

struct slot {                                /* a cache line */
	_Alignas(64) _Atomic uint64_t guard; /* number and state; 0: being written */
	_Atomic uint64_t what;               /* kind, type, redop, root */
	_Atomic uint64_t bytes;
	_Atomic uint64_t seq; /* the sequence number and the number of messages */
	_Atomic uintptr_t algorithm;
	_Atomic uint64_t queued, start, end; /* ticks; 0: not yet */
};

struct message_slot {
	_Atomic uint64_t peer; /* the peer, whether it is a send, and its number */
	_Atomic uint64_t bytes;
};

struct messages { /* allocated at the group's first send/recv */
	struct message_slot of[RECORDER_OPS][RECORDER_MESSAGES];
	uint32_t nth[]; /* [ranks][2]: messages from and to each rank so far */
};

struct tape {
	atomic_bool runs;     /* changes under the lock */
	pthread_mutex_t lock; /* of the rest */
	struct record *ops;
	int n, room;
	int64_t lost;
};

struct recorder {
	struct slot slots[RECORDER_OPS];
	_Atomic(struct messages *) messages;
	int ranks;
	bool counter;    /* ticks are the processor's; otherwise clock_ns */
	uint64_t ticks0; /* two readings of the same moment */
	int64_t ns0;
	uint64_t last;    /* number assigned */
	uint64_t current; /* number of the operation that has begun */
	_Atomic uint32_t collectives, messages_begun;
	struct tape tape;
};

/* --- Time --- */

/* Whether the processor's counter runs at a constant rate, whatever the core's speed and sleep
 * states. It costs half as much as the clock. */
static bool counter_is_even(void)
{
#if defined(__x86_64__)
	unsigned a, b, c, d;
	return __get_cpuid(0x80000007, &a, &b, &c, &d) && d >> 8 & 1;
#else
	return false;
#endif
}

static inline uint64_t read_ticks(const struct recorder *r)
{
#if defined(__x86_64__)
	if (r->counter)
		return __rdtsc();
#endif
	return (uint64_t)clock_ns();
}

struct timeline {
	uint64_t ticks;
	int64_t ns;
	double ns_per_tick;
};

/* Reads both clocks for the same moment. The thread may lose its core between them, so the pair that
 * took the least time is kept. */
static void read_both(const struct recorder *r, uint64_t *ticks, int64_t *ns)
{
	uint64_t shortest = UINT64_MAX;
	for (int i = 0; i < 8 && shortest > SHORT_TICKS; i++) {
		uint64_t before = read_ticks(r);
		int64_t now = clock_ns();
		uint64_t took = read_ticks(r) - before;
		if (took >= shortest)
			continue;
		shortest = took;
		*ticks = before + took / 2;
		*ns = now;
	}
}

static struct timeline timeline_now(const struct recorder *r)
{
	struct timeline t = { .ns_per_tick = 1 };
	read_both(r, &t.ticks, &t.ns);
	if (r->counter && t.ticks > r->ticks0)
		t.ns_per_tick = (double)(t.ns - r->ns0) / (double)(t.ticks - r->ticks0);
	return t;
}

static int64_t ticks_to_ns(const struct timeline *t, uint64_t at)
{
	return at ? t->ns - (int64_t)((double)(int64_t)(t->ticks - at) * t->ns_per_tick) : 0;
}

/* --- Writing --- */

int comm_recorder_open(int ranks, struct recorder **out, struct err *e)
{
	struct recorder *r = aligned_alloc(_Alignof(struct recorder), sizeof *r);
	if (!r)
		return err_set(e, ERR_NOMEM, "no memory for a flight recorder");
	*r = (struct recorder){ .ranks = ranks, .counter = counter_is_even() };
	read_both(r, &r->ticks0, &r->ns0);
	pthread_mutex_init(&r->tape.lock, NULL);
	*out = r;
	return 0;
}

void comm_recorder_close(struct recorder *r)
{
	if (!r)
		return;
	pthread_mutex_destroy(&r->tape.lock);
	free(r->tape.ops);
	free(atomic_load_explicit(&r->messages, memory_order_relaxed));
	free(r);
}

static inline void store_word(_Atomic uint64_t *word, uint64_t value)
{
	/* A reader that reads this value then reads the guard that was written with it, or a later
	 * one. */
	atomic_store_explicit(word, value, memory_order_release);
}

static inline uint64_t make_guard(uint64_t number, enum record_state state)
{
	return number << STATE_BITS | state;
}

static void put_what(struct slot *s, const struct op *op, uint64_t bytes, uint32_t seq)
{
	store_word(&s->what, (uint64_t)(uint32_t)op->root << 32 | (uint64_t)op->kind << 16 |
				     (uint64_t)op->type << 8 | op->redop);
	store_word(&s->bytes, bytes);
	store_word(&s->seq, (uint64_t)seq << 32 | (uint32_t)op->n);
}

uint64_t comm_recorder_queue(struct recorder *r, const struct op *op)
{
	uint64_t number = ++r->last;
	struct slot *s = &r->slots[number % RECORDER_OPS];
	uint64_t guard = atomic_load_explicit(&s->guard, memory_order_acquire);
	uint64_t before = number > RECORDER_OPS ? number - RECORDER_OPS : 0;
	if (guard && guard != make_guard(before, RECORD_DONE) &&
	    guard != make_guard(before, RECORD_FAILED))
		return number;
	store_word(&s->guard, 0);
	put_what(s, op, 0, 0);
	atomic_store_explicit(&s->algorithm, 0, memory_order_release);
	store_word(&s->queued, read_ticks(r));
	store_word(&s->start, 0);
	store_word(&s->end, 0);
	store_word(&s->guard, make_guard(number, RECORD_QUEUED));
	return number;
}

static struct messages *get_messages(struct recorder *r)
{
	struct messages *m = atomic_load_explicit(&r->messages, memory_order_relaxed);
	if (m)
		return m;
	/* without memory there are no peers in the dump */
	m = calloc(1, sizeof *m + (size_t)r->ranks * 2 * sizeof m->nth[0]);
	atomic_store_explicit(&r->messages, m, memory_order_release);
	return m;
}

/* Records the list of a send/recv; returns its bytes. */
static uint64_t put_messages(struct recorder *r, uint64_t number, const struct op *op)
{
	struct messages *m = get_messages(r);
	uint64_t all = 0;
	for (int i = 0; i < op->n; i++) {
		const struct comm_p2p *p = &op->p2p[i];
		uint64_t bytes = p->count * comm_type_size(p->type);
		all += bytes;
		if (!m)
			continue;
		uint32_t nth = ++m->nth[2 * p->peer + p->send];
		if (i >= RECORDER_MESSAGES)
			continue;
		struct message_slot *s = &m->of[number % RECORDER_OPS][i];
		store_word(&s->peer, (uint64_t)nth << 32 | (uint32_t)p->peer << 1 | p->send);
		store_word(&s->bytes, bytes);
	}
	return all;
}

void comm_recorder_begin(struct recorder *r, const struct op *op, const struct op_signature *sign,
			 const char *algorithm)
{
	if (!r)
		return;
	uint64_t number = op->record ? op->record : ++r->last;
	struct slot *s = &r->slots[number % RECORDER_OPS];
	bool queued = atomic_load_explicit(&s->guard, memory_order_relaxed) ==
		      make_guard(number, RECORD_QUEUED);
	bool messages = op->kind == OP_P2P;
	r->current = number;
	store_word(&s->guard, 0);
	put_what(s, op, messages ? put_messages(r, number, op) : comm_op_bytes(op, r->ranks),
		 sign->seq);
	atomic_store_explicit(&s->algorithm, (uintptr_t)algorithm, memory_order_release);
	if (!queued)
		store_word(&s->queued, 0);
	store_word(&s->start, read_ticks(r));
	store_word(&s->end, 0);
	atomic_store_explicit(messages ? &r->messages_begun : &r->collectives, sign->seq,
			      memory_order_relaxed);
	store_word(&s->guard, make_guard(number, RECORD_RUNNING));
}

static void add_to_tape(struct recorder *r, int slot);

void comm_recorder_end(struct recorder *r, bool failed)
{
	if (!r)
		return;
	int slot = (int)(r->current % RECORDER_OPS);
	struct slot *s = &r->slots[slot];
	store_word(&s->end, read_ticks(r));
	store_word(&s->guard, make_guard(r->current, failed ? RECORD_FAILED : RECORD_DONE));
	if (atomic_load_explicit(&r->tape.runs, memory_order_relaxed))
		add_to_tape(r, slot);
}

/* --- Reading --- */

static inline uint64_t load_word(const _Atomic uint64_t *word)
{
	return atomic_load_explicit(word, memory_order_acquire);
}

static void read_messages(const struct recorder *r, int slot, struct record *out)
{
	const struct messages *m = atomic_load_explicit(&r->messages, memory_order_acquire);
	out->listed = m && out->messages > 0 ? out->messages : 0;
	if (out->listed > RECORDER_MESSAGES)
		out->listed = RECORDER_MESSAGES;
	for (int i = 0; i < out->listed; i++) {
		uint64_t peer = load_word(&m->of[slot][i].peer);
		out->message[i] = (struct record_message){
			.send = peer & 1,
			.peer = (int)((uint32_t)peer >> 1),
			.nth = (uint32_t)(peer >> 32),
			.bytes = load_word(&m->of[slot][i].bytes),
		};
	}
}

/* false: it was being written. */
static bool read_slot(const struct recorder *r, int slot, const struct timeline *t,
		      struct record *out)
{
	const struct slot *s = &r->slots[slot];
	uint64_t guard = load_word(&s->guard), what = load_word(&s->what), seq = load_word(&s->seq);
	if (!guard)
		return false;
	*out = (struct record){
		.number = guard >> STATE_BITS,
		.state = guard & ((1 << STATE_BITS) - 1),
		.kind = what >> 16 & 0xff,
		.type = what >> 8 & 0xff,
		.redop = what & 0xff,
		.root = (int)(what >> 32),
		.seq = (uint32_t)(seq >> 32),
		.messages = (int)(uint32_t)seq,
		.bytes = load_word(&s->bytes),
		.algorithm = (const char *)atomic_load_explicit(&s->algorithm,
								memory_order_acquire),
		.queued = ticks_to_ns(t, load_word(&s->queued)),
		.start = ticks_to_ns(t, load_word(&s->start)),
		.end = ticks_to_ns(t, load_word(&s->end)),
	};
	if (out->kind == OP_P2P && out->state != RECORD_QUEUED)
		read_messages(r, slot, out);
	if (out->state == RECORD_RUNNING)
		out->end = 0;
	return atomic_load_explicit(&s->guard, memory_order_relaxed) == guard;
}

void comm_recorder_counts(const struct recorder *r, uint32_t *collectives, uint32_t *messages)
{
	*collectives = atomic_load_explicit(&r->collectives, memory_order_relaxed);
	*messages = atomic_load_explicit(&r->messages_begun, memory_order_relaxed);
}

static int by_number(const void *a, const void *b)
{
	const struct record *x = a, *y = b;
	return (x->number > y->number) - (x->number < y->number);
}

int comm_recorder_read(const struct recorder *r, struct record *out)
{
	struct timeline now = timeline_now(r);
	int n = 0;
	for (int i = 0; i < RECORDER_OPS; i++)
		for (int tries = 0; tries < TRIES; tries++)
			if (read_slot(r, i, &now, &out[n])) {
				n++;
				break;
			}
	qsort(out, (size_t)n, sizeof *out, by_number);
	return n;
}

/* --- The tape --- */

static struct record *tape_room(struct tape *t)
{
	if (t->n < t->room)
		return &t->ops[t->n++];
	int room = t->room ? 2 * t->room : RECORDER_OPS;
	struct record *ops = room > COMM_TAPE_OPS ? NULL
						  : realloc(t->ops, (size_t)room * sizeof *ops);
	if (!ops)
		return NULL;
	t->ops = ops;
	t->room = room;
	return &t->ops[t->n++];
}

/* The slot's operation has ended, on this thread, so nobody writes to the slot. */
static void add_to_tape(struct recorder *r, int slot)
{
	struct tape *t = &r->tape;
	struct timeline now = timeline_now(r);
	pthread_mutex_lock(&t->lock);
	if (atomic_load_explicit(&t->runs, memory_order_relaxed)) {
		struct record *out = tape_room(t);
		if (out)
			read_slot(r, slot, &now, out);
		else
			t->lost++;
	}
	pthread_mutex_unlock(&t->lock);
}

void comm_recorder_tape_start(struct recorder *r)
{
	struct tape *t = &r->tape;
	pthread_mutex_lock(&t->lock);
	t->n = 0;
	t->lost = 0;
	atomic_store_explicit(&t->runs, true, memory_order_relaxed);
	pthread_mutex_unlock(&t->lock);
}

struct record *comm_recorder_tape_stop(struct recorder *r, int *n, int64_t *lost)
{
	struct tape *t = &r->tape;
	pthread_mutex_lock(&t->lock);
	atomic_store_explicit(&t->runs, false, memory_order_relaxed);
	struct record *ops = t->ops;
	*n = t->n;
	*lost = t->lost;
	t->ops = NULL;
	t->n = t->room = 0;
	pthread_mutex_unlock(&t->lock);
	return ops;
}
