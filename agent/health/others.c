#include "agent/health/others.h"

#include "agent/health/text.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CPUS_MAX = 8192, PROCESSES_MAX = 65536 };

struct used {
	int pid;
	double seconds;
};

struct health_others {
	const char *root; /* borrowed */
	int self, n, room;
	struct used *list; /* ascending by pid after begin() */
};

static int compare(const void *a, const void *b)
{
	const struct used *x = a, *y = b;
	return (x->pid > y->pid) - (x->pid < y->pid);
}

static bool add(struct health_others *o, const struct health_process *p)
{
	if (o->n == o->room) {
		int room = o->room ? 2 * o->room : 256;
		struct used *list = realloc(o->list, (size_t)room * sizeof *list);
		if (!list)
			return false;
		o->list = list;
		o->room = room;
	}
	o->list[o->n++] = (struct used){ p->pid, p->seconds };
	return true;
}

/* Calls `visit` for each process but `self`, until it returns false. */
static void visit_processes(const struct health_others *o,
			    bool (*visit)(void *arg, const struct health_process *p), void *arg)
{
	char path[PATH_MAX], text[1024];
	struct health_process p;
	snprintf(path, sizeof path, "%s/proc", o->root ? o->root : "");
	DIR *dir = opendir(path);
	int seen = 0;
	for (struct dirent *e; dir && seen < PROCESSES_MAX && (e = readdir(dir));) {
		if (e->d_name[0] < '1' || e->d_name[0] > '9')
			continue;
		seen++;
		snprintf(path, sizeof path, "proc/%.20s/stat", e->d_name);
		if (health_text_read(o->root, path, text, sizeof text) &&
		    health_text_process(text, &p) && p.pid != o->self && !visit(arg, &p))
			break;
	}
	if (dir)
		closedir(dir);
}

static bool note(void *arg, const struct health_process *p)
{
	return add(arg, p);
}

struct health_others *health_others_begin(const char *root, int self)
{
	struct health_others *o = calloc(1, sizeof *o);
	if (!o)
		return NULL;
	o->root = root;
	o->self = self;
	visit_processes(o, note, o);
	if (o->n)
		qsort(o->list, (size_t)o->n, sizeof *o->list, compare);
	return o;
}

struct search {
	const struct health_others *before;
	const bool *cpus; /* NULL: all */
	double most;      /* seconds */
	struct health_process top;
};

static bool keep_larger(void *arg, const struct health_process *p)
{
	struct search *s = arg;
	const struct used key = { .pid = p->pid };
	const struct used *old = s->before->n ? bsearch(&key, s->before->list, (size_t)s->before->n,
							sizeof key, compare)
					      : NULL;
	double used = p->seconds - (old ? old->seconds : 0);
	bool here = !s->cpus || (p->cpu >= 0 && p->cpu < CPUS_MAX && s->cpus[p->cpu]);
	if (here && used > s->most) {
		s->most = used;
		s->top = *p;
	}
	return true;
}

bool health_others_end(struct health_others *o, const char *cpus, double seconds,
		       struct health_user *out)
{
	static _Thread_local bool mask[CPUS_MAX];
	memset(mask, 0, sizeof mask);
	struct search s = { .before = o };
	if (cpus && *cpus && health_text_cpus(cpus, mask, CPUS_MAX))
		s.cpus = mask;
	if (o && seconds > 0)
		visit_processes(o, keep_larger, &s);
	if (o)
		free(o->list);
	free(o);
	if (s.most <= 0)
		return false;
	*out = (struct health_user){ .pid = s.top.pid,
				     .cpu = s.top.cpu,
				     .share = s.most / seconds };
	for (int i = 0; s.top.name[i]; i++)
		out->name[i] = s.top.name[i] > ' ' && s.top.name[i] < 127 ? s.top.name[i] : '?';
	return true;
}
