/*
 * Compares the declarations of NVIDIA's library in topo/discover/nvml_api.h with its own header at
 * compile time: sizes, offsets, values, and the type of every function. If that header is missing,
 * the test reports it and skips.
 */
#include "topo/discover/nvml_api.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#if defined __has_include
#if __has_include(<nvml.h>)
#define HAVE_NVML
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>
#endif
#endif

#ifdef HAVE_NVML

#define SAME_SIZE(ours, theirs) _Static_assert(sizeof(struct ours) == sizeof(theirs), #ours)
#define SAME_PLACE(ours, member, theirs, name) \
	_Static_assert(offsetof(struct ours, member) == offsetof(theirs, name) && \
			       sizeof(((struct ours *)0)->member) == sizeof(((theirs *)0)->name), \
		       #ours "." #member)
#define SAME_VALUE(ours, theirs) _Static_assert((long long)(ours) == (long long)(theirs), #ours)

SAME_SIZE(nvml_memory, nvmlMemory_t);
SAME_PLACE(nvml_memory, total, nvmlMemory_t, total);
SAME_PLACE(nvml_memory, free, nvmlMemory_t, free);
SAME_PLACE(nvml_memory, used, nvmlMemory_t, used);
SAME_SIZE(nvml_memory_v2, nvmlMemory_v2_t);
SAME_PLACE(nvml_memory_v2, version, nvmlMemory_v2_t, version);
SAME_PLACE(nvml_memory_v2, total, nvmlMemory_v2_t, total);
SAME_PLACE(nvml_memory_v2, reserved, nvmlMemory_v2_t, reserved);
SAME_PLACE(nvml_memory_v2, free, nvmlMemory_v2_t, free);
SAME_PLACE(nvml_memory_v2, used, nvmlMemory_v2_t, used);
SAME_VALUE(NVML_VERSION(struct nvml_memory_v2, 2), nvmlMemory_v2);
SAME_SIZE(nvml_pci, nvmlPciInfo_t);
SAME_PLACE(nvml_pci, legacy, nvmlPciInfo_t, busIdLegacy);
SAME_PLACE(nvml_pci, domain, nvmlPciInfo_t, domain);
SAME_PLACE(nvml_pci, bus, nvmlPciInfo_t, bus);
SAME_PLACE(nvml_pci, device, nvmlPciInfo_t, device);
SAME_PLACE(nvml_pci, id, nvmlPciInfo_t, pciDeviceId);
SAME_PLACE(nvml_pci, subsystem, nvmlPciInfo_t, pciSubSystemId);
SAME_PLACE(nvml_pci, text, nvmlPciInfo_t, busId);
SAME_SIZE(nvml_fabric, nvmlGpuFabricInfo_v2_t);
SAME_PLACE(nvml_fabric, cluster, nvmlGpuFabricInfo_v2_t, clusterUuid);
SAME_PLACE(nvml_fabric, status, nvmlGpuFabricInfo_v2_t, status);
SAME_PLACE(nvml_fabric, clique, nvmlGpuFabricInfo_v2_t, cliqueId);
SAME_PLACE(nvml_fabric, state, nvmlGpuFabricInfo_v2_t, state);
SAME_VALUE(NVML_VERSION(struct nvml_fabric, 2), nvmlGpuFabricInfo_v2);
SAME_SIZE(nvml_process, nvmlProcessInfo_t);
SAME_PLACE(nvml_process, pid, nvmlProcessInfo_t, pid);
SAME_PLACE(nvml_process, bytes, nvmlProcessInfo_t, usedGpuMemory);
SAME_PLACE(nvml_process, instance, nvmlProcessInfo_t, gpuInstanceId);
SAME_PLACE(nvml_process, compute_instance, nvmlProcessInfo_t, computeInstanceId);

SAME_SIZE(nvml_event, nvmlEventData_t);
SAME_PLACE(nvml_event, device, nvmlEventData_t, device);
SAME_PLACE(nvml_event, type, nvmlEventData_t, eventType);
SAME_PLACE(nvml_event, data, nvmlEventData_t, eventData);
SAME_PLACE(nvml_event, instance, nvmlEventData_t, gpuInstanceId);
SAME_PLACE(nvml_event, compute_instance, nvmlEventData_t, computeInstanceId);

SAME_VALUE(NVML_OK, NVML_SUCCESS);
SAME_VALUE(NVML_NOT_PERMITTED, NVML_ERROR_NO_PERMISSION);
SAME_VALUE(NVML_NOT_ENOUGH_ROOM, NVML_ERROR_INSUFFICIENT_SIZE);
SAME_VALUE(NVML_NOT_SUPPORTED, NVML_ERROR_NOT_SUPPORTED);
SAME_VALUE(NVML_OFF, NVML_FEATURE_DISABLED);
SAME_VALUE(NVML_ON, NVML_FEATURE_ENABLED);
SAME_VALUE(NVML_PEER_GPU, NVML_NVLINK_DEVICE_TYPE_GPU);
SAME_VALUE(NVML_PEER_SWITCH, NVML_NVLINK_DEVICE_TYPE_SWITCH);
SAME_VALUE(NVML_P2P_READ, NVML_P2P_CAPS_INDEX_READ);
SAME_VALUE(NVML_P2P_FINE, NVML_P2P_STATUS_OK);
SAME_VALUE(NVML_P2P_UNTOLD, NVML_P2P_STATUS_UNKNOWN);
SAME_VALUE(NVML_JOINED, NVML_GPU_FABRIC_STATE_COMPLETED);
SAME_VALUE(NVML_CORRECTED, NVML_MEMORY_ERROR_TYPE_CORRECTED);
SAME_VALUE(NVML_UNCORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED);
SAME_VALUE(NVML_SINCE_LOAD, NVML_VOLATILE_ECC);
SAME_VALUE(NVML_EVER, NVML_AGGREGATE_ECC);
SAME_VALUE(NVML_RETIRED_SINGLE, NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS);
SAME_VALUE(NVML_RETIRED_DOUBLE, NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR);
SAME_VALUE(NVML_REPLAYS, NVML_NVLINK_ERROR_DL_REPLAY);
SAME_VALUE(NVML_RECOVERIES, NVML_NVLINK_ERROR_DL_RECOVERY);
SAME_VALUE(NVML_CRC_FLITS, NVML_NVLINK_ERROR_DL_CRC_FLIT);
SAME_VALUE(NVML_CRC_DATA, NVML_NVLINK_ERROR_DL_CRC_DATA);
SAME_VALUE(NVML_COMPUTE_PROHIBITED, NVML_COMPUTEMODE_PROHIBITED);
SAME_VALUE(NVML_TEMPERATURE, NVML_TEMPERATURE_GPU);
SAME_VALUE(NVML_SLOWDOWN_AT, NVML_TEMPERATURE_THRESHOLD_SLOWDOWN);
SAME_VALUE(NVML_SLOW_POWER_CAP, nvmlClocksThrottleReasonSwPowerCap);
SAME_VALUE(NVML_SLOW_HARDWARE, nvmlClocksThrottleReasonHwSlowdown);
SAME_VALUE(NVML_SLOW_SW_THERMAL, nvmlClocksThrottleReasonSwThermalSlowdown);
SAME_VALUE(NVML_SLOW_HW_THERMAL, nvmlClocksThrottleReasonHwThermalSlowdown);
SAME_VALUE(NVML_SLOW_POWER_BRAKE, nvmlClocksThrottleReasonHwPowerBrakeSlowdown);
SAME_VALUE(NVML_EVENT_XID, nvmlEventTypeXidCriticalError);
SAME_VALUE(NVML_SM_CLOCK, NVML_CLOCK_SM);

/* From here on, our names stand for NVIDIA's types, so that the types of the calls can be
 * compared. */
#define nvml_code_t      nvmlReturn_t
#define nvml_device_t    nvmlDevice_t
#define nvml_state_t     nvmlEnableState_t
#define nvml_peer_t      nvmlIntNvLinkDeviceType_t
#define nvml_p2p_index_t nvmlGpuP2PCapsIndex_t
#define nvml_p2p_t       nvmlGpuP2PStatus_t
#define nvml_error_t     nvmlMemoryErrorType_t
#define nvml_span_t      nvmlEccCounterType_t
#define nvml_cause_t     nvmlPageRetirementCause_t
#define nvml_counter_t   nvmlNvLinkErrorCounter_t
#define nvml_mode_t      nvmlComputeMode_t
#define nvml_sensor_t    nvmlTemperatureSensors_t
#define nvml_threshold_t nvmlTemperatureThresholds_t
#define nvml_clock_t     nvmlClockType_t
#define nvml_events_t    nvmlEventSet_t
#define nvml_event       nvmlEventData_st
#define nvml_memory      nvmlMemory_st
#define nvml_memory_v2   nvmlMemory_v2_st
#define nvml_pci         nvmlPciInfo_st
#define nvml_process     nvmlProcessInfo_v2_st
/* NVIDIA's type has no tag and is passed as a later version. Its size and members are compared
 * above. */
#define nvml_fabric fabric_of_theirs
struct fabric_of_theirs;

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#define COMPARE(result, member, symbol, needed, arguments) \
	enum { same_##member = __builtin_types_compatible_p(__typeof__(symbol), result arguments) };
NVML_CALLS(COMPARE)

static void every_call_has_the_type_of_nvidias_header(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		int same;
	} calls[] = {
#define CALL(result, member, symbol, needed, arguments) { #symbol, same_##member },
		NVML_CALLS(CALL)
	};
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
		if (!calls[i].same && !strstr(calls[i].name, "FabricInfoV"))
			fail_msg("%s: declared otherwise than in nvml.h", calls[i].name);
}

#else

static void every_call_has_the_type_of_nvidias_header(void **state)
{
	(void)state;
	print_message("no nvml.h here: CUDA's toolkit has it (package cuda-nvml-dev)\n");
	skip();
}

#endif

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(
		every_call_has_the_type_of_nvidias_header) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
