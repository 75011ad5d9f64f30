/* needs: a job's needs as JSON, for other processes: in an answer, or as a word on the command line
 * of a node's process. */
#include "launcher/doctor/doctor.h"

#include <string.h>

json_t *doctor_needs_json(const struct needs *n)
{
	return json_pack("{s:b, s:b, s:b, s:b, s:b, s:i, s:f, s:f, s:f, s:s, s:s, s:s, s:s, s:s}",
			 "job", n->job, "cuda", n->cuda, "fp32", n->fp32, "program", n->program,
			 "slurm", n->slurm, "ranks", n->ranks, "memory", n->memory, "host_memory",
			 n->host_memory, "checkpoint", n->checkpoint, "run_dir", n->run_dir,
			 "ckpt_dir", n->ckpt_dir, "data", n->data, "interface", n->interface,
			 "trouble", n->trouble);
}

static int copy_fitting(char *to, size_t size, const char *text)
{
	size_t len = strlen(text);
	if (len >= size)
		return -1;
	memcpy(to, text, len + 1);
	return 0;
}

int doctor_needs_from_json(const json_t *doc, struct needs *out)
{
	struct needs n = { .job = false };
	const char *run_dir, *ckpt_dir, *data, *interface, *trouble;
	int job, cuda, fp32 = 0, program = 0, slurm;
	if (json_unpack((json_t *)doc,
			"{s:b, s:b, s?b, s?b, s:b, s:i, s:F, s:F, s:F, s:s, s:s, s:s, s:s, s:s}",
			"job", &job, "cuda", &cuda, "fp32", &fp32, "program", &program, "slurm",
			&slurm, "ranks", &n.ranks, "memory", &n.memory, "host_memory",
			&n.host_memory, "checkpoint", &n.checkpoint, "run_dir", &run_dir,
			"ckpt_dir", &ckpt_dir, "data", &data, "interface", &interface, "trouble",
			&trouble))
		return -1;
	if (copy_fitting(n.run_dir, sizeof n.run_dir, run_dir) ||
	    copy_fitting(n.ckpt_dir, sizeof n.ckpt_dir, ckpt_dir) ||
	    copy_fitting(n.data, sizeof n.data, data) ||
	    copy_fitting(n.interface, sizeof n.interface, interface) ||
	    copy_fitting(n.trouble, sizeof n.trouble, trouble))
		return -1;
	n.job = job;
	n.cuda = cuda;
	n.fp32 = fp32;
	n.program = program;
	n.slurm = slurm;
	*out = n;
	return 0;
}

int doctor_needs_read(const char *text, struct needs *out, struct err *e)
{
	json_t *doc = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	int rc = doc ? doctor_needs_from_json(doc, out) : -1;
	json_decref(doc);
	return rc ? err_set(e, ERR_USAGE,
			    "--report, --node: the value is invalid; only muster itself uses these "
			    "options, for the nodes of an allocation")
		  : 0;
}
