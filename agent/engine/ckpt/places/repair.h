/*
 * repair — makes a damaged checkpoint whole again from another copy of the same state.
 *
 * The manifest of the damaged checkpoint must be intact: its digests say which slices, headers and
 * attached files are good. Those that are missing or damaged are fetched from the good checkpoint,
 * which has the same step and model, and may have another layout and be in another storage. Every
 * byte that is written was compared with a digest of the damaged checkpoint's manifest, so the
 * result is what was saved, byte for byte, with the same manifest.
 *
 * Nothing is changed in place. The repaired checkpoint is a new attempt, which is published as
 * step-N when it is complete. The damaged one is kept as damaged-step-N.NONCE.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_PLACES_REPAIR_H
#define MUSTER_AGENT_ENGINE_CKPT_PLACES_REPAIR_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct ckpt_repair {
	char path[1024]; /* of the repaired checkpoint; of the given one if it is whole */
	char kept[1024]; /* where the damaged one is now; "": it is whole */
	int64_t step;
	int64_t slices, fetched; /* of the checkpoint; of them, from the good one */
	int64_t headers;         /* that were damaged */
	int64_t attached;        /* files that were damaged */
	int64_t strangers;       /* files that its manifest does not list; they are left out */
	bool whole;              /* it was not damaged; nothing is written */
};

/* only_look: finds out what is damaged, and writes nothing. ERR_CORRUPT: the manifest is damaged, or
 * neither checkpoint has some slice; ERR_USAGE: they are not of one state. */
int ckpt_repair(const char *bad, const char *good, bool only_look, struct ckpt_repair *out,
		struct err *e);

#endif
