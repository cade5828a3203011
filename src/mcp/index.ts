export { rpcCodes } from "./codes.ts";
export {
  type AgentError,
  type AgentErrorKind,
  type Answer,
  type AnswerTo,
  agentErrorAnswer,
  agentErrors,
  deniedAnswer,
  errorAnswer,
  errorEvent,
  methodNotFoundAnswer,
  type ResetName,
  refusalAnswer,
  resetAnswer,
  resetErrorKind,
} from "./contract.ts";
export { compareHeaders, decodeMirrored, eraOf, findRepeatedHeader } from "./headers.ts";
export { editLists, readInputMethods, readUpdatedUri } from "./list-edit.ts";
export { isEventStream, isJson, parseMediaType } from "./media-type.ts";
export { idKeyOf, readMessage } from "./message.ts";
export { subjectOf } from "./methods.ts";
export { MessageSkimmer } from "./skim.ts";
export { dataOf, type EventFacts, type EventSink, EventSplitter, replaceData, withoutData } from "./sse.ts";
export type { AgentMessage, ClientKind, Era, ListKind, Refusal, Subject } from "./types.ts";
