/*
 * dcp_names — finds the tensors of a model among those of a DCP folder (dcp.h).
 *
 * Names may have words of wrappers (module, _orig_mod, …), which are removed wherever they are. The
 * model's names have one prefix, under which the program that saved the folder kept its model; it is
 * the first of a table (dcp_names.c) under which the token embedding is.
 */
#ifndef MUSTER_AGENT_ENGINE_HF_DCP_NAMES_H
#define MUSTER_AGENT_ENGINE_HF_DCP_NAMES_H

#include "agent/engine/dcp/metadata.h"
#include "agent/engine/hf/names.h"
#include "base/err.h"

/* A tensor of the folder under its name without wrappers. */
struct hf_dcp_name {
	char name[DCP_NAME];
	struct dcp_tensor *tensor;
	bool used;
};

struct hf_dcp_names {
	struct hf_dcp_name *list; /* sorted by name */
	int64_t n;
	const char *prefix; /* of the model's tensors */
	bool megatron;
	const struct hf_names *names;
};

/* folder: its name, for errors. ERR_CORRUPT: two tensors have the same name without wrappers. */
int hf_dcp_names_list(const struct dcp_metadata *m, const char *folder, struct hf_dcp_names *out,
		      struct err *e);
void hf_dcp_names_free(struct hf_dcp_names *d);

/* Finds the prefix, and whether the names are Megatron's. `names` is borrowed. */
int hf_dcp_names_set_model(struct hf_dcp_names *d, const struct hf_names *names, const char *folder,
			   struct err *e);

/* Finds a tensor by transformers' name, with or without its first word; by Megatron's (arg: struct
 * hf_dcp_names). Both mark it as used. NULL: none. */
struct dcp_tensor *hf_dcp_names_find(struct hf_dcp_names *d, const char *name);
struct dcp_tensor *hf_dcp_names_find_megatron(void *arg, const char *name);

/* The name under the prefix; NULL for a tensor of the optimizer or of training, or one outside the
 * prefix. */
const char *hf_dcp_names_of_model(const struct hf_dcp_names *d, const struct hf_dcp_name *x);

#endif
