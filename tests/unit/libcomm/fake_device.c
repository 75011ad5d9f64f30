#include "tests/unit/libcomm/fake_device.h"

#include "base/clock.h"
#include "tests/unit/patience.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { AREAS = 64, RANKS = 8, ROOM = 64 << 10, SPANS = 256, POISON = 0xa5, FIRST_LOOKS = 3 };

struct event {
	uint64_t recorded, done;
};

enum action_kind { COPY, RECORD, WAIT, OPERATION };

struct action {
	enum action_kind kind;
	struct action *next;
	void *to;
	const void *from;
	size_t bytes;
	struct event *event;
	uint64_t ticket;
	struct device_comm *dc;
	struct op op;
	uint32_t number;
	bool came;
};

struct stream {
	struct action *head, **tail;
	struct stream *next;
};

struct device {
	int index;
};

struct area { /* a communicator, shared by its ranks */
	_Atomic uint32_t opened, came[RANKS], left[RANKS];
	_Atomic int color[RANKS], key[RANKS];
	_Atomic uint32_t posted[RANKS];
	_Atomic int ended; /* ranks that have closed it; after that, all operations wait for ever */
	_Alignas(64) char slot[2][RANKS][ROOM];
};

struct device_comm {
	struct area *area;
	struct device_comm *parent; /* until the split is done */
	int index, ranks, rank;
	int color, key;
	uint32_t queued, splits;
	int looks; /* remaining polls until the operation is done */
	bool finishing;
	bool ended; /* closed; kept until no stream refers to it */
};

static struct hub {
	_Atomic int areas;
	struct area area[AREAS];
} * hub;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct stream default_stream = { NULL, &default_stream.head, NULL };
static struct span {
	char *at;
	size_t bytes;
	bool device;
} spans[SPANS];
static bool one_device;
static _Atomic(enum fake_fault) fault; /* the watcher of a group reads it, too */
static int misuse, things;
static uint32_t random_state = 12345;

static void wrong(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	fputs("fake device: ", stderr);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	misuse++;
}

static uint32_t roll(uint32_t sides)
{
	random_state = random_state * 1664525u + 1013904223u;
	return (random_state >> 8) % sides;
}

/* --- Memory --- */

static bool lies_in(const void *at, size_t bytes, bool device)
{
	for (int i = 0; i < SPANS; i++)
		if (spans[i].at && spans[i].device == device && (const char *)at >= spans[i].at &&
		    (const char *)at + bytes <= spans[i].at + spans[i].bytes)
			return true;
	return false;
}

static void span_add(void *at, size_t bytes, bool device)
{
	for (int i = 0; i < SPANS; i++)
		if (!spans[i].at) {
			spans[i] = (struct span){ at, bytes, device };
			things++;
			return;
		}
	wrong("too many buffers");
}

static void span_drop(const void *at)
{
	for (int i = 0; at && i < SPANS; i++)
		if (spans[i].at == at) {
			spans[i].at = NULL;
			things--;
			return;
		}
	if (at)
		wrong("%p is no buffer", at);
}

/* --- The library's operations --- */

static int64_t *slot_of(struct device_comm *dc, uint32_t number, int rank)
{
	return (int64_t *)(void *)dc->area->slot[number & 1][rank];
}

static bool all_at_least(struct device_comm *dc, _Atomic uint32_t *word, uint32_t number)
{
	for (int r = 0; r < dc->ranks; r++)
		if (atomic_load(&word[r]) < number)
			return false;
	return true;
}

static void sum(struct device_comm *dc, const struct action *a)
{
	int64_t *out = a->op.out;
	for (size_t i = 0; i < a->op.count; i++) {
		int64_t total = 0;
		for (int r = 0; r < dc->ranks; r++)
			total += slot_of(dc, a->number, r)[i];
		out[i] = total;
	}
}

static void give_out(struct device_comm *dc, const struct action *a)
{
	size_t bytes = a->op.count * comm_type_size(a->op.type);
	if (a->op.kind == OP_ALL_REDUCE)
		sum(dc, a);
	for (int r = 0; a->op.kind == OP_ALL_GATHER && r < dc->ranks; r++)
		memcpy((char *)a->op.out + (size_t)r * bytes, slot_of(dc, a->number, r), bytes);
	if (a->op.kind == OP_BROADCAST)
		memcpy(a->op.out, slot_of(dc, a->number, a->op.root), bytes);
}

/* Returns whether the operation is done. */
static bool perform_action(struct action *a)
{
	struct device_comm *dc = a->dc;
	struct area *area = dc->area;
	if (dc->ended)
		return true;
	if (atomic_load(&area->ended))
		return false;
	if (!a->came) {
		if (a->number > 2 && !all_at_least(dc, area->left, a->number - 2))
			return false;
		if (a->op.in)
			memcpy(slot_of(dc, a->number, dc->rank), a->op.in,
			       a->op.count * comm_type_size(a->op.type));
		atomic_store(&area->came[dc->rank], a->number);
		a->came = true;
	}
	if (!all_at_least(dc, area->came, a->number))
		return false;
	give_out(dc, a);
	atomic_store(&area->left[dc->rank], a->number);
	return true;
}

/* --- Streams --- */

static struct stream *stream_of(void *stream)
{
	return stream ? stream : &default_stream;
}

static void push(void *stream, struct action action)
{
	struct stream *s = stream_of(stream);
	struct action *a = malloc(sizeof *a);
	*a = action;
	a->next = NULL;
	*s->tail = a;
	s->tail = &a->next;
}

/* Performs the first action of a stream; returns whether that was possible. */
static bool act(struct stream *s)
{
	struct action *a = s->head;
	if (!a || (a->kind == WAIT && a->event->done < a->ticket) ||
	    (a->kind == OPERATION && !perform_action(a)))
		return false;
	if (a->kind == COPY)
		memcpy(a->to, a->from, a->bytes);
	if (a->kind == RECORD)
		a->event->done = a->ticket;
	s->head = a->next;
	if (!s->head)
		s->tail = &s->head;
	free(a);
	return true;
}

/* Performs a few actions. */
static void pump(void)
{
	int n = 1, at;
	for (struct stream *s = &default_stream; s->next; s = s->next)
		n++;
	for (uint32_t left = 1 + roll(3); left; left--) {
		at = (int)roll((uint32_t)n);
		struct stream *s = &default_stream;
		for (int i = 0; i < at; i++)
			s = s->next;
		for (int i = 0; i < n && !act(s); i++)
			s = s->next ? s->next : &default_stream;
	}
}

static void finish(struct stream *s)
{
	const double until = clock_s() + PATIENT_WAIT_S;
	for (long i = 0; s->head && clock_s() < until; i++) {
		pump();
		pthread_mutex_unlock(&lock);
		if (i > 1000)
			usleep(200);
		pthread_mutex_lock(&lock);
	}
	if (s->head)
		wrong("a stream never becomes empty");
}

static int fake_stream_open(struct device *d, void **stream, struct err *e)
{
	struct stream *s = calloc(1, sizeof *s);
	(void)d, (void)e;
	pthread_mutex_lock(&lock);
	s->tail = &s->head;
	s->next = default_stream.next;
	default_stream.next = s;
	things++;
	pthread_mutex_unlock(&lock);
	*stream = s;
	return 0;
}

static void fake_stream_close(struct device *d, void *stream)
{
	(void)d;
	pthread_mutex_lock(&lock);
	finish(stream);
	for (struct stream *s = &default_stream; s; s = s->next)
		if (s->next == stream) {
			s->next = s->next->next;
			break;
		}
	things--;
	pthread_mutex_unlock(&lock);
	free(stream);
}

static int fake_event_open(struct device *d, void **event, struct err *e)
{
	(void)d, (void)e;
	*event = calloc(1, sizeof(struct event));
	pthread_mutex_lock(&lock);
	things++;
	pthread_mutex_unlock(&lock);
	return 0;
}

static void fake_event_close(struct device *d, void *event)
{
	(void)d;
	pthread_mutex_lock(&lock);
	for (struct stream *s = &default_stream; s; s = s->next)
		for (struct action *a = s->head; a; a = a->next)
			if ((a->kind == RECORD || a->kind == WAIT) && a->event == event) {
				finish(s); /* real events may be destroyed while they are in use */
				break;
			}
	things--;
	pthread_mutex_unlock(&lock);
	free(event);
}

static int fake_event_record(struct device *d, void *event, void *stream, struct err *e)
{
	struct event *ev = event;
	(void)d, (void)e;
	pthread_mutex_lock(&lock);
	push(stream, (struct action){ .kind = RECORD, .event = ev, .ticket = ++ev->recorded });
	pthread_mutex_unlock(&lock);
	return 0;
}

static int fake_event_done(struct device *d, void *event, struct err *e)
{
	struct event *ev = event;
	(void)d, (void)e;
	pthread_mutex_lock(&lock);
	pump();
	int done = ev->done >= ev->recorded;
	pthread_mutex_unlock(&lock);
	return done;
}

static int fake_stream_wait(struct device *d, void *stream, void *event, struct err *e)
{
	struct event *ev = event;
	(void)d, (void)e;
	pthread_mutex_lock(&lock);
	push(stream, (struct action){ .kind = WAIT, .event = ev, .ticket = ev->recorded });
	pthread_mutex_unlock(&lock);
	return 0;
}

/* --- Pinned memory and copies --- */

static int fake_pin(struct device *d, void *memory, size_t bytes, struct err *e)
{
	(void)d, (void)e;
	pthread_mutex_lock(&lock);
	span_add(memory, bytes, false);
	pthread_mutex_unlock(&lock);
	return 0;
}

static void fake_unpin(struct device *d, void *memory)
{
	(void)d;
	pthread_mutex_lock(&lock);
	span_drop(memory);
	pthread_mutex_unlock(&lock);
}

static int fake_copy(struct device *d, void *to, const void *from, size_t bytes, void *stream,
		     struct err *e)
{
	(void)d, (void)e;
	pthread_mutex_lock(&lock);
	bool out = lies_in(from, bytes, true) && lies_in(to, bytes, false);
	bool in = lies_in(from, bytes, false) && lies_in(to, bytes, true);
	if (!out && !in)
		wrong("a copy of %zu bytes is not between the device and pinned memory", bytes);
	if (out)
		memset(to, POISON, bytes);
	push(stream, (struct action){ .kind = COPY, .to = to, .from = from, .bytes = bytes });
	pthread_mutex_unlock(&lock);
	return 0;
}

/* --- The library --- */

static int library_usable(struct device *d, struct err *e)
{
	(void)d;
	return fault == FAKE_NO_LIBRARY ? err_set(e, ERR_NOTFOUND, "there is no libfakes.so") : 0;
}

static int library_new_key(struct device *d, unsigned char key[DEVICE_KEY], struct err *e)
{
	int area = atomic_fetch_add(&hub->areas, 1);
	(void)d, (void)e;
	memcpy(key, &area, sizeof area);
	return 0;
}

static struct device_comm *comm_new(int area)
{
	struct device_comm *dc = calloc(1, sizeof *dc);
	pthread_mutex_lock(&lock);
	things++;
	pthread_mutex_unlock(&lock);
	dc->index = area;
	dc->area = &hub->area[area % AREAS];
	dc->looks = FIRST_LOOKS;
	return dc;
}

static int library_open(struct device *d, const unsigned char key[DEVICE_KEY], int ranks, int rank,
			const struct device_comm_options *opt, struct device_comm **out,
			struct err *e)
{
	int area;
	(void)d, (void)e;
	if (!opt->name || !*opt->name)
		wrong("a communicator without a name");
	memcpy(&area, key, sizeof area);
	*out = comm_new(area);
	(*out)->ranks = ranks;
	(*out)->rank = rank;
	atomic_fetch_add(&(*out)->area->opened, 1);
	return 0;
}

static int library_split(struct device_comm *parent, int color, int key,
			 const struct device_comm_options *opt, struct device_comm **out,
			 struct err *e)
{
	if (!opt->name || !*opt->name)
		wrong("a communicator without a name");
	(void)e;
	struct device_comm *dc = *out = comm_new(16 + 4 * (int)parent->splits + color);
	if (parent->looks)
		wrong("a split of a communicator that is not ready");
	dc->parent = parent;
	dc->color = color;
	dc->key = key;
	atomic_store(&parent->area->color[parent->rank], color);
	atomic_store(&parent->area->key[parent->rank], key);
	atomic_store(&parent->area->posted[parent->rank], ++parent->splits);
	return 0;
}

/* Runs once all ranks have given their color. */
static void number_ranks(struct device_comm *dc)
{
	struct device_comm *p = dc->parent;
	for (int r = 0; r < p->ranks; r++) {
		if (atomic_load(&p->area->color[r]) != dc->color)
			continue;
		dc->ranks++;
		int key = atomic_load(&p->area->key[r]);
		dc->rank += key < dc->key || (key == dc->key && r < p->rank);
	}
	dc->parent = NULL;
}

static void queue_one(struct device_comm *dc, const struct op *op, void *stream)
{
	size_t bytes = op->count * comm_type_size(op->type);
	if (op->kind != OP_ALL_REDUCE && op->kind != OP_ALL_GATHER && op->kind != OP_BROADCAST &&
	    op->kind != OP_BARRIER)
		wrong("operation %d is not in this library", op->kind);
	if (bytes > ROOM || (bytes && op->in && !lies_in(op->in, bytes, true)))
		wrong("%zu bytes that are not the device's", bytes);
	push(stream,
	     (struct action){ .kind = OPERATION, .dc = dc, .op = *op, .number = ++dc->queued });
}

static int library_queue(struct device_comm *dc, const struct op *ops, int n, void *stream,
			 struct err *e)
{
	(void)e;
	pthread_mutex_lock(&lock);
	if (dc->looks || dc->parent)
		wrong("an operation on a communicator that is not ready");
	for (int i = 0; i < n; i++)
		queue_one(dc, &ops[i], stream);
	dc->looks = (int)roll(FIRST_LOOKS);
	pthread_mutex_unlock(&lock);
	return 0;
}

static int library_ready(struct device_comm *dc, struct err *e)
{
	if (fault == FAKE_LIBRARY_FAILS)
		return err_set(e, ERR_NET, "the cable is out");
	if (dc->looks) {
		dc->looks--;
		return 0;
	}
	if (dc->finishing) /* it would wait for ever for a peer that has not taken everything */
		return all_at_least(dc, dc->area->left, dc->queued);
	if (dc->parent) {
		for (int r = 0; r < dc->parent->ranks; r++)
			if (atomic_load(&dc->parent->area->posted[r]) < dc->parent->splits)
				return 0;
		number_ranks(dc);
		atomic_fetch_add(&dc->area->opened, 1);
	}
	return dc->color < 0 || atomic_load(&dc->area->opened) >= (uint32_t)dc->ranks;
}

static int library_finish(struct device_comm *dc, struct err *e)
{
	(void)e;
	if (dc->looks || dc->parent || dc->finishing)
		wrong("an end of a communicator that is not ready");
	dc->finishing = true;
	return 0;
}

static void library_close(struct device_comm *dc)
{
	pthread_mutex_lock(&lock);
	atomic_fetch_add(&dc->area->ended, 1);
	dc->ended = true; /* its operations in the streams end; the process owns the memory */
	things--;
	pthread_mutex_unlock(&lock);
}

static const struct device_collectives library = {
	.name = "fakes",
	.usable = library_usable,
	.new_key = library_new_key,
	.open = library_open,
	.split = library_split,
	.queue = library_queue,
	.ready = library_ready,
	.finish = library_finish,
	.close = library_close,
};

/* --- The device --- */

static int fake_open(int index, struct device **out, struct err *e)
{
	struct device *d = calloc(1, sizeof *d);
	(void)e;
	d->index = index;
	pthread_mutex_lock(&lock);
	things++;
	pthread_mutex_unlock(&lock);
	*out = d;
	return 0;
}

static void fake_close(struct device *d)
{
	pthread_mutex_lock(&lock);
	things--;
	pthread_mutex_unlock(&lock);
	free(d);
}

static void fake_identify(struct device *d, char id[DEVICE_ID])
{
	snprintf(id, DEVICE_ID, "fake-%d-%d", one_device ? 0 : (int)getpid(), d->index);
}

const struct comm_device fake_device = {
	.name = "fake",
	.open = fake_open,
	.close = fake_close,
	.identify = fake_identify,
	.stream_open = fake_stream_open,
	.stream_close = fake_stream_close,
	.event_open = fake_event_open,
	.event_close = fake_event_close,
	.event_record = fake_event_record,
	.event_done = fake_event_done,
	.stream_wait = fake_stream_wait,
	.pin = fake_pin,
	.unpin = fake_unpin,
	.copy = fake_copy,
	.collectives = &library,
};

/* --- For the tests --- */

void fake_set_up(bool one)
{
	one_device = one;
	if (hub)
		munmap(hub, sizeof *hub);
	hub = mmap(NULL, sizeof *hub, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (hub == MAP_FAILED)
		abort();
}

void fake_set_fault(enum fake_fault f)
{
	fault = f;
}

void *fake_memory(size_t bytes)
{
	char *p = malloc(bytes + 1);
	pthread_mutex_lock(&lock);
	span_add(p, bytes, true);
	pthread_mutex_unlock(&lock);
	return p;
}

void fake_release(void *memory)
{
	pthread_mutex_lock(&lock);
	span_drop(memory);
	pthread_mutex_unlock(&lock);
	free(memory);
}

void fake_kernel(void *to, const void *from, size_t bytes, void *stream)
{
	pthread_mutex_lock(&lock);
	push(stream, (struct action){ .kind = COPY, .to = to, .from = from, .bytes = bytes });
	pthread_mutex_unlock(&lock);
}

void fake_finish(void *stream)
{
	pthread_mutex_lock(&lock);
	finish(stream_of(stream));
	pthread_mutex_unlock(&lock);
}

int fake_misuse(void)
{
	return misuse;
}

int fake_open_things(void)
{
	return things;
}
