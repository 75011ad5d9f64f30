#include "agent/health/kinds.h"
#include "agent/health/text.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 640 }; /* bytes of a path below the root */

/* Calls `visit` for each entry of a folder below the root. */
static void visit_folder(const char *root, const char *dir,
			 void (*visit)(void *arg, const char *dir, const char *name), void *arg)
{
	char path[PATH_MAX];
	if (snprintf(path, sizeof path, "%s/%s", root, dir) >= (int)sizeof path)
		return;
	DIR *d = opendir(path);
	for (struct dirent *e; d && (e = readdir(d));)
		if (e->d_name[0] != '.')
			visit(arg, dir, e->d_name);
	if (d)
		closedir(d);
}

struct total {
	const char *root, *device;
	struct health_devices *seen;
	const char *const *names;
	double most;
	bool any;
	char *largest;
};

/* Notes the errors of a device. Returns how many are new; 0 for a device that was not there
 * before. */
static double increase(struct health_devices *seen, const char *device, double errors)
{
	int i = 0;
	while (i < seen->n && strncmp(seen->list[i].name, device, HEALTH_OBJECT - 1))
		i++;
	if (i == HEALTH_DEVICES)
		return 0;
	double before = i < seen->n ? seen->list[i].errors : errors;
	if (i == seen->n)
		snprintf(seen->list[seen->n++].name, HEALTH_OBJECT, "%.*s", HEALTH_OBJECT - 1,
			 device);
	seen->list[i].errors = errors;
	return errors - before;
}

/* Adds the counters in one folder. */
static void add_counters(struct total *t, const char *dir)
{
	char path[LONGEST], text[64];
	double own = 0;
	for (int i = 0; t->names[i]; i++) {
		snprintf(path, sizeof path, "%.500s/%s", dir, t->names[i]);
		if (!health_text_read(t->root, path, text, sizeof text))
			continue;
		double n = atof(text);
		own += n > 0 && n < 1e18 ? n : 0;
		t->any = true;
	}
	double more = increase(t->seen, t->device, own);
	t->seen->total += more > 0 ? more : 0;
	if (more > t->most) {
		t->most = more;
		snprintf(t->largest, HEALTH_OBJECT, "%.*s", HEALTH_OBJECT - 1, t->device);
	}
}

/* A virtual interface has no folder "device": what it drops says nothing about a cable. */
static void visit_interface(void *arg, const char *dir, const char *name)
{
	struct total *t = arg;
	char path[LONGEST], text[64];
	snprintf(path, sizeof path, "%.200s/%.255s/device/uevent", dir, name);
	if (!health_text_read(t->root, path, text, sizeof text))
		return;
	t->device = name;
	snprintf(path, sizeof path, "%.200s/%.255s/statistics", dir, name);
	add_counters(t, path);
}

static void visit_port(void *arg, const char *dir, const char *name)
{
	struct total *t = arg;
	const char *adapter = t->device;
	char path[LONGEST], port[HEALTH_OBJECT];
	snprintf(port, sizeof port, "%.40s port %.8s", adapter, name);
	snprintf(path, sizeof path, "%.250s/%.255s/counters", dir, name);
	t->device = port;
	add_counters(t, path);
	t->device = adapter;
}

static void visit_adapter(void *arg, const char *dir, const char *name)
{
	struct total *t = arg;
	char path[LONGEST];
	t->device = name;
	snprintf(path, sizeof path, "%.200s/%.255s/ports", dir, name);
	visit_folder(t->root, path, visit_port, t);
}

bool health_sum_net(const char *root, const char *const *names, struct health_devices *seen,
		    double *sum, char most[HEALTH_OBJECT])
{
	struct total t = { .root = root, .names = names, .largest = most, .seen = seen };
	visit_folder(root, "sys/class/net", visit_interface, &t);
	*sum = seen->total;
	return t.any;
}

bool health_sum_infiniband(const char *root, const char *const *names, struct health_devices *seen,
			   double *sum, char most[HEALTH_OBJECT])
{
	struct total t = { .root = root, .names = names, .largest = most, .seen = seen };
	visit_folder(root, "sys/class/infiniband", visit_adapter, &t);
	*sum = seen->total;
	return t.any;
}
