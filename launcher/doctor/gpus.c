/* gpus: checks each GPU by itself, against the node's other GPUs, and against what the job
 * needs. */
#include "launcher/doctor/doctor.h"

#include "base/human.h"
#include "topo/cluster.h"
#include "topo/discover/gpu_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gpu_check {
	const struct gpu_state *g;
	struct findings *f;
	char object[48];
	int warnings, bad;
};

static void report_problem(void *arg, enum gpu_level level, const char *found, const char *remedy)
{
	struct gpu_check *p = arg;
	p->warnings += level != GPU_BAD;
	p->bad += level == GPU_BAD;
	doctor_found_bad(p->f, level == GPU_BAD ? FINDING_FAIL : FINDING_WARN, p->object, remedy,
			 "%s", found);
}

/* The highest number of active NVLinks among the GPUs of the same model. */
static int links_of_siblings(const struct gpu_states *s, const struct gpu_state *g)
{
	int most = 0;
	for (int i = 0; i < s->n; i++)
		if (!*s->gpus[i].trouble && !strcmp(s->gpus[i].name, g->name) &&
		    s->gpus[i].links_up > most)
			most = s->gpus[i].links_up;
	return most;
}

static void check_links(const struct gpu_states *s, struct gpu_check *p)
{
	const struct gpu_state *g = p->g;
	int usual = links_of_siblings(s, g);
	char text[160], remedy[160], which[80] = "";
	int down = g->links - g->links_up;
	if (g->links_up >= usual)
		return;
	/* The driver does not report a link that is switched off permanently. */
	if (down)
		snprintf(which, sizeof which, ": link%s %s %s down", human_s(down), g->links_down,
			 down == 1 ? "is" : "are");
	snprintf(text, sizeof text, "%d of %d NVLinks are up, but GPUs of the same model have %d%s",
		 g->links_up, g->links, usual, which);
	snprintf(remedy, sizeof remedy,
		 "run nvidia-smi nvlink -s -i %d and read the log of fabricmanager; then reset the "
		 "GPU or reseat it",
		 g->index);
	report_problem(p, GPU_WARN, text, remedy);
}

static void check_use(const struct needs *n, struct gpu_check *p)
{
	const struct gpu_state *g = p->g;
	char text[256], need[HUMAN], there[HUMAN], all[HUMAN];
	if (g->n_processes > 0) {
		const struct gpu_process *first = &g->processes[0];
		snprintf(text, sizeof text, "%d program%s running on it: pid %d%s%s%s, %s",
			 g->n_processes, g->n_processes > 1 ? "s are" : " is", first->pid,
			 *first->name ? " (" : "", first->name, *first->name ? ")" : "",
			 first->bytes >= 0 ? human_bytes(first->bytes, all) : "memory unknown");
		report_problem(p, GPU_WARN, text,
			       "end it, exclude the GPU with CUDA_VISIBLE_DEVICES, or request "
			       "whole nodes (--exclusive)");
	}
	if (n->memory > 0 && g->memory_free >= 0 && g->memory_free < n->memory) {
		snprintf(text, sizeof text, "%s of %s are free, but a rank of this job needs %s",
			 human_bytes(g->memory_free, there), human_bytes(g->memory, all),
			 human_bytes(n->memory, need));
		report_problem(p, GPU_BAD, text,
			       "end the programs that hold the memory; or lower batch.micro, raise "
			       "parallel.tp or parallel.pp, or set recompute.mode = full");
	}
}

static int check_gpu(const struct gpu_states *s, const struct gpu_state *g, const struct needs *n,
		     struct findings *f, int *usable)
{
	struct gpu_check p = { .g = g, .f = f };
	snprintf(p.object, sizeof p.object, "GPU%d%s%s%s", g->index, *g->bus ? " (" : "", g->bus,
		 *g->bus ? ")" : "");
	topo_gpu_judge(g, report_problem, &p);
	if (!*g->trouble) {
		check_links(s, &p);
		check_use(n, &p);
	}
	*usable += !p.bad;
	return p.bad || p.warnings;
}

/* Reports all GPUs without a problem in one line. */
static void report_healthy(const struct gpu_states *s, int sound, const struct gpu_state *first,
			   struct findings *f)
{
	char least[HUMAN], object[24], links[48] = "";
	double there = -1;
	for (int i = 0; i < s->n; i++)
		if (!*s->gpus[i].trouble && s->gpus[i].memory_free >= 0 &&
		    (there < 0 || s->gpus[i].memory_free < there))
			there = s->gpus[i].memory_free;
	if (first->links_up)
		snprintf(links, sizeof links, ", %d NVLinks each", first->links_up);
	snprintf(object, sizeof object, "%d GPU%s", sound, human_s(sound));
	doctor_found_ok(f, object, "%s%s%s%s%s%s%s", first->name, links, there >= 0 ? ", " : "",
			there >= 0 ? human_bytes(there, least) : "", there >= 0 ? " free" : "",
			*s->driver ? ", driver " : "", s->driver);
}

/* SXM modules communicate over NVLink only. PCIe cards work without NVLink. */
static void check_fabric(const struct gpu_states *s, struct findings *f)
{
	for (int i = 0; i < s->n; i++)
		if (*s->gpus[i].trouble || !s->gpus[i].links || s->gpus[i].links_up)
			return;
	if (s->n > 1 && !strstr(s->gpus[0].name, "PCIe"))
		doctor_found_bad(f, FINDING_WARN, "NVLink",
				 "if the node has NVSwitches, run systemctl status "
				 "nvidia-fabricmanager; cards "
				 "without bridges have no NVLinks, and nothing is wrong",
				 "none of the %d NVLinks of each GPU is up", s->gpus[0].links);
}

static void check_count(const struct gpu_states *s, int usable, const struct needs *n,
			struct findings *f)
{
	char hidden[64] = "";
	if (s->hidden)
		snprintf(hidden, sizeof hidden, "; CUDA_VISIBLE_DEVICES hides %d", s->hidden);
	if (n->cuda && usable < n->ranks)
		doctor_found_bad(
			f, FINDING_FAIL, "GPUs",
			"repair the GPUs above, plan fewer ranks per node, or request other nodes",
			"%d of %d can be used, but the job has %d rank%s on this node%s", usable,
			s->n, n->ranks, human_s(n->ranks), hidden);
	else if (s->hidden)
		doctor_found_ok(f, "GPUs", "%d of %d%s", s->n, s->n + s->hidden, hidden);
}

void doctor_check_gpus(const struct needs *n, struct findings *f)
{
	struct gpu_states s;
	struct err e = ERR_INIT;
	const struct gpu_state *first = NULL;
	int sound = 0, usable = 0;
	if (topo_gpu_states_read(NVML_LIBRARY, getenv("CUDA_VISIBLE_DEVICES"), &s, &e)) {
		if (e.code == ERR_NOTFOUND && !n->cuda)
			doctor_found_ok(f, "GPUs", "no NVIDIA GPU");
		else
			doctor_found_bad(f, n->cuda ? FINDING_FAIL : FINDING_WARN, "GPUs",
					 "run nvidia-smi; start a container with its GPUs "
					 "(--gpus all, --nv)",
					 "%s", e.text);
		return;
	}
	doctor_found_facts(f, doctor_gpu_facts(&s));
	for (int i = 0; i < s.n; i++) {
		if (check_gpu(&s, &s.gpus[i], n, f, &usable))
			continue;
		sound++;
		first = first ? first : &s.gpus[i];
	}
	if (sound)
		report_healthy(&s, sound, first, f);
	check_fabric(&s, f);
	check_count(&s, usable, n, f);
	if (!s.n && !n->cuda && !s.hidden)
		doctor_found_ok(f, "GPUs", "none");
	topo_gpu_states_free(&s);
}

/* --- Distance between GPUs and NICs --- */

static const char *const nearness[LINK_KINDS] = {
	[LINK_PIX] = "on one PCIe switch",
	[LINK_PXB] = "over several PCIe switches",
	[LINK_PHB] = "over the CPU's PCIe bridge",
	[LINK_NODE] = "on the same NUMA domain",
	[LINK_SYS] = "across sockets",
};

void doctor_check_near(const struct needs *n, struct findings *f)
{
	struct cluster c;
	struct err e = ERR_INIT;
	(void)n;
	if (topo_cluster_probe("local", true, &c, &e)) {
		doctor_found_bad(f, FINDING_WARN, "hardware", "run muster topo", "%s", e.text);
		return;
	}
	const struct node_kind *k = &c.kinds[0];
	int counts[LINK_KINDS] = { 0 }, unseen = 0;
	for (int i = 0; k->parts && i < k->devices; i++) {
		const struct topo_device *d = &k->parts[i];
		unseen += !*d->cpus;
		if (d->nic < 0)
			continue;
		counts[d->nic_link]++;
		if (d->nic_link == LINK_SYS)
			doctor_found_bad(f, FINDING_WARN, d->name,
					 "move an adapter to a slot of the same socket; muster "
					 "topo shows the node",
					 "its nearest adapter, %s, is on another socket",
					 k->nics[d->nic].name);
	}
	if (unseen)
		doctor_found_bad(
			f, FINDING_WARN, "PCI devices",
			"apt install libhwloc-plugins (HWLOC_COMPONENTS must not exclude pci)",
			"hwloc reports no position of %d of %d GPUs", unseen, k->devices);
	for (int kind = LINK_SYS + 1; kind < LINK_KINDS; kind++)
		if (counts[kind] && nearness[kind])
			doctor_found_ok(f, "GPU to adapter", "%d GPU%s with one %s (%s)",
					counts[kind], human_s(counts[kind]), nearness[kind],
					topo_link_word((enum link_kind)kind));
	if (!k->parts)
		doctor_found_ok(f, "hardware", "%d × %s; muster topo shows them", k->devices,
				k->device);
	else if (!unseen && !f->n)
		doctor_found_ok(f, "GPU to adapter", "hwloc reports no adapter");
	topo_cluster_free(&c);
}
