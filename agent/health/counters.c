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
	const char *const *names;
	double sum, most;
	bool any;
	char *largest;
};

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
	t->sum += own;
	if (own > t->most) {
		t->most = own;
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
	char path[LONGEST];
	snprintf(path, sizeof path, "%.250s/%.255s/counters", dir, name);
	add_counters(arg, path);
}

static void visit_adapter(void *arg, const char *dir, const char *name)
{
	struct total *t = arg;
	char path[LONGEST];
	t->device = name;
	snprintf(path, sizeof path, "%.200s/%.255s/ports", dir, name);
	visit_folder(t->root, path, visit_port, t);
}

bool health_sum_net(const char *root, const char *const *names, double *sum,
		    char most[HEALTH_OBJECT])
{
	struct total t = { .root = root, .names = names, .largest = most };
	visit_folder(root, "sys/class/net", visit_interface, &t);
	*sum = t.sum;
	return t.any;
}

bool health_sum_infiniband(const char *root, const char *const *names, double *sum,
			   char most[HEALTH_OBJECT])
{
	struct total t = { .root = root, .names = names, .largest = most };
	visit_folder(root, "sys/class/infiniband", visit_adapter, &t);
	*sum = t.sum;
	return t.any;
}
