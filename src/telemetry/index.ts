export { createLogger, type LogFields, type Logger, type LogLevel, silentLogger } from "./logger.ts";
export {
  type Family,
  Histogram,
  type HistogramFamily,
  type MetricFamily,
  processMetrics,
  renderMetrics,
  type Sample,
  single,
} from "./metrics.ts";
