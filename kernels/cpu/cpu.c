/* Chooses the widest instruction set that this processor has and the binary was built for. */
#include "kernels/cpu/cpu.h"

#include "kernels/cpu/blas.h"

#include <string.h>

/* enter_<isa> enters the ops built for an instruction set if the processor supports it. */
/* clang-format off */
#define CPU_CALL(isa, family) cpu_##isa##_##family(o);
#define CPU_ENTER(isa, supported)                                                                  \
	CPU_FAMILIES(CPU_DECLARE, isa)                                                             \
	static bool enter_##isa(struct ops *o)                                                     \
	{                                                                                          \
		bool ok = supported;                                                               \
		if (ok) {                                                                          \
			CPU_FAMILIES(CPU_CALL, isa)                                                \
		}                                                                                  \
		return ok;                                                                         \
	}
/* clang-format on */

#ifdef CPU_HAVE_v4
CPU_ENTER(v4, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
		      __builtin_cpu_supports("avx512cd"))
#endif
#ifdef CPU_HAVE_v3
CPU_ENTER(v3, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
		      __builtin_cpu_supports("bmi2"))
#endif
#ifdef CPU_HAVE_v2
CPU_ENTER(v2, __builtin_cpu_supports("sse4.2"))
#endif
#ifdef CPU_HAVE_base
CPU_ENTER(base, true)
#endif

/* Widest first. */
static const struct isa {
	const char *name;
	bool (*enter)(struct ops *o);
} isas[] = {
#ifdef CPU_HAVE_v4
	{ "v4", enter_v4 },
#endif
#ifdef CPU_HAVE_v3
	{ "v3", enter_v3 },
#endif
#ifdef CPU_HAVE_v2
	{ "v2", enter_v2 },
#endif
#ifdef CPU_HAVE_base
	{ "base", enter_base },
#endif
};
enum { ISAS = sizeof isas / sizeof isas[0] };

int cpu_fill(struct backend *k, const char *variant, struct err *e)
{
	if (cpu_blas_open(k->threads, e))
		return -1;
	for (int i = 0; i < ISAS; i++)
		if ((!variant || !strcmp(variant, isas[i].name)) && isas[i].enter(&k->ops)) {
			k->isa = isas[i].name;
			return 0;
		}
	return err_set(e, ERR_UNSUPPORTED,
		       "backend cpu%s%s: this processor lacks the instructions; use the backend %s",
		       variant ? "-" : "", variant ? variant : "", variant ? "cpu" : "reference");
}
