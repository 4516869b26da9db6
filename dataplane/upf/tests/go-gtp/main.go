// Builds GTP-U messages with go-gtp and parses dray's. Each input line is a request, each output
// line its reply; bytes are in hexadecimal.
package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"

	"github.com/wmnsk/go-gtp/gtpv1/ie"
	"github.com/wmnsk/go-gtp/gtpv1/message"
)

// An extension header, as it stands in a message; Content is without length and next type.
type extension struct {
	Type    uint8  `json:"type"`
	Content string `json:"content"`
}

type request struct {
	// Either a message of ours,
	Read string `json:"read"`
	// or what to build: "tpdu", "echo", "end" or "error".
	Build      string      `json:"build"`
	TEID       uint32      `json:"teid"`
	Sequence   *uint16     `json:"sequence"`
	NPDU       *uint8      `json:"npdu"`
	Extensions []extension `json:"extensions"`
	Payload    string      `json:"payload"`
}

type answer struct {
	Error      string      `json:"error,omitempty"`
	Message    string      `json:"message,omitempty"`
	Type       uint8       `json:"type"`
	TEID       uint32      `json:"teid"`
	Sequence   uint16      `json:"sequence"`
	Extensions []extension `json:"extensions"`
	Payload    string      `json:"payload"`
	// Of an error indication.
	LostTEID uint32 `json:"lost_teid"`
	Address  string `json:"address"`
	// Of a notification of supported extension headers.
	Supported []uint8 `json:"supported"`
	// Marshalled anew it is the same.
	Same bool `json:"same"`
}

func build(r request) (answer, error) {
	payload, err := hex.DecodeString(r.Payload)
	if err != nil {
		return answer{}, err
	}
	var built message.Message
	switch r.Build {
	case "tpdu":
		header := message.NewHeader(0x30, message.MsgTypeTPDU, r.TEID, 0, payload)
		if r.Sequence != nil {
			header.WithSequenceNumber(*r.Sequence)
		}
		if r.NPDU != nil {
			header.WithNPDUNumber(*r.NPDU)
		}
		var extensions []*message.ExtensionHeader
		for i, e := range r.Extensions {
			next := uint8(message.ExtHeaderTypeNoMoreExtensionHeaders)
			if i+1 < len(r.Extensions) {
				next = r.Extensions[i+1].Type
			}
			content, err := hex.DecodeString(e.Content)
			if err != nil {
				return answer{}, err
			}
			extensions = append(extensions, message.NewExtensionHeader(e.Type, content, next))
		}
		if len(extensions) > 0 {
			header.WithExtensionHeaders(extensions...)
		}
		header.SetLength()
		bytes, err := header.Marshal()
		return answer{Message: hex.EncodeToString(bytes)}, err
	case "echo":
		built = message.NewEchoRequest(*r.Sequence, ie.NewPrivateExtension(10923, payload))
	case "end":
		end := message.NewEndMarker()
		end.SetTEID(r.TEID)
		built = end
	case "error":
		built = message.NewErrorIndication(0, *r.Sequence, ie.NewTEIDDataI(r.TEID), ie.NewGSNAddress("10.0.3.2"))
	default:
		return answer{}, fmt.Errorf("build %q: one of tpdu, echo, end, error", r.Build)
	}
	bytes, err := message.Marshal(built)
	return answer{Message: hex.EncodeToString(bytes)}, err
}

func read(r request) (answer, error) {
	bytes, err := hex.DecodeString(r.Read)
	if err != nil {
		return answer{}, err
	}
	parsed, err := message.Parse(bytes)
	if err != nil {
		return answer{}, err
	}
	a := answer{Type: parsed.MessageType(), TEID: parsed.TEID(), Sequence: parsed.Sequence()}
	header, err := message.ParseHeader(bytes)
	if err != nil {
		return answer{}, err
	}
	for _, e := range header.ExtensionHeaders {
		a.Extensions = append(a.Extensions, extension{e.Type, hex.EncodeToString(e.Content)})
	}
	a.Payload = hex.EncodeToString(header.Payload)
	switch m := parsed.(type) {
	case *message.ErrorIndication:
		if m.TEIDDataI != nil {
			a.LostTEID = m.TEIDDataI.MustTEID()
		}
		if m.GTPUPeerAddress != nil {
			a.Address = m.GTPUPeerAddress.MustGSNAddress()
		}
	case *message.SupportedExtensionHeaderNotification:
		if m.ExtensionHeaderTypeList != nil {
			a.Supported = m.ExtensionHeaderTypeList.Payload
		}
	}
	again, err := message.Marshal(parsed)
	a.Same = err == nil && string(again) == string(bytes)
	return a, nil
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var r request
		err := json.Unmarshal(lines.Bytes(), &r)
		var a answer
		switch {
		case err != nil:
		case r.Build != "":
			a, err = build(r)
		default:
			a, err = read(r)
		}
		if err != nil {
			a.Error = err.Error()
		}
		if err := out.Encode(a); err != nil {
			os.Exit(1)
		}
	}
}
