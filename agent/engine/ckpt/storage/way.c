#include "agent/engine/ckpt/storage/way.h"

#include <pthread.h>

/* A process writes to few file systems; if there are more, the last entry serves them in turn. */
enum { DEVICES = 8, FIRST_TRIALS = 2, TRIAL_EVERY = 16 };

static const double newest_weight = 0.5, clearly_faster = 1.25;

static struct device {
	bool used, refused;
	uint64_t device;
	int64_t files;
	double rates[CKPT_WAYS]; /* 0: unknown */
} devices[DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct device *find(uint64_t device)
{
	int i = 0;
	while (i < DEVICES - 1 && devices[i].used && devices[i].device != device)
		i++;
	if (!devices[i].used || devices[i].device != device)
		devices[i] = (struct device){ .used = true, .device = device };
	return &devices[i];
}

enum ckpt_way ckpt_way_choose(uint64_t device)
{
	pthread_mutex_lock(&lock);
	const struct device *d = find(device);
	double direct = d->rates[CKPT_WAY_DIRECT], buffered = d->rates[CKPT_WAY_BUFFERED];
	bool faster = direct > 0 && buffered > clearly_faster * direct;
	enum ckpt_way way = d->refused || faster ? CKPT_WAY_BUFFERED : CKPT_WAY_DIRECT;
	pthread_mutex_unlock(&lock);
	return way;
}

bool ckpt_way_tries(uint64_t device)
{
	pthread_mutex_lock(&lock);
	struct device *d = find(device);
	int64_t file = d->files++;
	bool tries = !d->refused && (file < FIRST_TRIALS || file % TRIAL_EVERY == 0);
	pthread_mutex_unlock(&lock);
	return tries;
}

void ckpt_way_learn(uint64_t device, enum ckpt_way way, double bytes_per_s)
{
	pthread_mutex_lock(&lock);
	double *rate = &find(device)->rates[way];
	*rate = *rate > 0 ? *rate + newest_weight * (bytes_per_s - *rate) : bytes_per_s;
	pthread_mutex_unlock(&lock);
}

void ckpt_way_refuse(uint64_t device)
{
	pthread_mutex_lock(&lock);
	find(device)->refused = true;
	pthread_mutex_unlock(&lock);
}
