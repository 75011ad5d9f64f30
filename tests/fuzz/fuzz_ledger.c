/* Any bytes as a ledger: they are refused, or they give an audit with consistent lines and
 * findings. */
#include "agent/engine/data/audit.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err e = ERR_INIT;
	struct audit *a;
	if (data_audit_open((const char *)data, size, &a, &e)) {
		if (!e.text[0])
			abort();
		return 0;
	}
	int64_t at = a->first;
	for (int64_t i = 0; i < a->n_steps; i++) {
		const struct ledger_line *l = &a->steps[i];
		if (l->to <= l->from || l->global < 1 || (!a->n_findings && l->first != at))
			abort();
		if (l->end < l->first + (l->to - l->from) * l->global)
			abort();
		at = l->end;
	}
	if (!a->n_findings && at != a->samples)
		abort();
	int64_t skipped = 0;
	for (int i = 0; i < a->n_skips; i++) {
		const struct audit_skip *k = &a->skips[i];
		if (k->count < 1 || !k->reason || (i && !a->n_findings && k->first < k[-1].first))
			abort();
		skipped += k->count;
	}
	if (skipped != a->skipped)
		abort();
	data_audit_metrics(a, (const char *)data, size);
	data_audit_close(a);
	return 0;
}
