/* A job's needs as a word on a node's command line. */
#include "launcher/doctor/doctor.h"

#include <string.h>

json_t *needs_json(const struct needs *n)
{
	return json_pack("{s:b, s:b, s:b, s:i, s:f, s:f, s:f, s:s, s:s, s:s, s:s}", "job", n->job, "cuda", n->cuda, "slurm",
			 n->slurm, "ranks", n->ranks, "memory", n->memory,
			 "host_memory", n->host_memory, "checkpoint", n->checkpoint, "run_dir", n->run_dir, "ckpt_dir", n->ckpt_dir,
			 "data", n->data, "interface", n->interface);
}

int needs_read(const char *text, struct needs *out, struct err *e)
{
	struct needs n = { .job = false };
	const char *run_dir, *ckpt_dir, *data, *interface;
	int job, cuda, slurm;
	json_t *doc = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	int rc = doc ? json_unpack(doc, "{s:b, s:b, s:b, s:i, s:F, s:F, s:F, s:s, s:s, s:s, s:s}", "job", &job, "cuda", &cuda,
				   "slurm", &slurm, "ranks", &n.ranks, "memory", &n.memory,
				   "host_memory", &n.host_memory, "checkpoint", &n.checkpoint, "run_dir", &run_dir, "ckpt_dir",
				   &ckpt_dir, "data", &data, "interface", &interface)
		     : -1;
	if (!rc && (strlen(run_dir) >= sizeof n.run_dir || strlen(ckpt_dir) >= sizeof n.ckpt_dir || strlen(data) >= sizeof n.data ||
		    strlen(interface) >= sizeof n.interface))
		rc = -1;
	if (!rc) {
		strcpy(n.run_dir, run_dir);
		strcpy(n.ckpt_dir, ckpt_dir);
		strcpy(n.data, data);
		strcpy(n.interface, interface);
		n.job = job;
		n.cuda = cuda;
		n.slurm = slurm;
		*out = n;
	}
	json_decref(doc);
	return rc ? err_set(e, ERR_USAGE, "--report: what follows it is no needs of a job; muster doctor itself gives it to the "
			    "nodes") : 0;
}
